"""What may differ between plain sbatch and safelaunch, each with its reason: the one list of it.

docs/conformance.md shows ALLOWED and SAID; `test_page.py` holds them together. NORMAL is what differs between two runs
of plain sbatch, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Normal(NamedTuple):
    """Text that means the same on both sides, and what stands for it."""

    pattern: re.Pattern[str]
    word: str
    why: str


class Allowed(NamedTuple):
    """A difference that is no fault: its kind, the names that it has, and the reason."""

    kind: str
    name: str       # a regex of the whole name
    why: str


class Said(NamedTuple):
    """A difference that is no fault where `submit` says it, in words that match `words`."""

    kind: str
    name: str
    words: str


NORMAL = (
    Normal(re.compile(r"(?<!\d)([2-5]\d{7}|9\d{8})(?!\d)"), "JOB",
           "each side has a job of its own, and an array a number"),
    Normal(re.compile(r"/\S*/(job(JOB|\d+)(\.\d+)?/slurm_script|safelaunch-\d+/[^/\s]+/slurm_script)"),
           "SPOOL/slurm_script", "$0 is the node's copy of the script, in a folder of Slurm's or of the supervisor's"),
    Normal(re.compile(r"/\S*/(job(JOB|\d+)(\.\d+)?|safelaunch-\d+/\w+-JOB[^/\s]*)(?=[\s:'\"]|$)"), "SPOOL",
           "and the folder of $0"),
    Normal(re.compile(r"(?<=PATH=)/[^:\s]*/safelaunch-\d+/[^:\s]*/bin:"), "", "the wrappers stand first on PATH"),
    Normal(re.compile(r"^/[^:\s]*/safelaunch-\d+/[^:\s]*/bin:"), "", "the wrappers stand first on PATH"),
    Normal(re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"), "TIME", "times"),
    Normal(re.compile(r"\b(RunTime|Priority|AllocNode:Sid|SecsPreSuspend|Scheduler)=\S+"), r"\1=…",
           "times, and Slurm's own"),
    Normal(re.compile(r"(?<= )\d?\d:\d\d(?= )"), "0:00", "squeue's column TIME"),
    Normal(re.compile(r"\b(StepId=|STEP )JOB\.\d+"), r"\1JOB.N", "the supervisor's own steps have numbers, too"),
    Normal(re.compile(r"\b365-00:00:00\b"), "UNLIMITED", "Slurm's own two words for it"),
    Normal(re.compile(r"\b42949\d{5}\b"), "PRIORITY", "Slurm counts it down from job to job"),
    Normal(re.compile(r"\b0x[0-9a-f]+\b"), "0x…", "addresses"),
)

ALLOWED = (
    Allowed("environment", r"SAFELAUNCH_\w+", "the run's own, for the script's use (docs/scripts.md)"),
    Allowed("environment", r"BASH_FUNC_(srun|sbatch|scontrol|squeue|scancel|sacct|salloc)%%", "the wrappers"),
    Allowed("environment", r"WANDB_(RUN_ID|RESUME)",
            "so that a restart goes on in the tracker's run (docs/trackers.md)"),
    Allowed("environment", r"PYTHONUNBUFFERED", "a rank's last lines must not be lost with it"),
    Allowed("environment", r"BASH_ENV", "finds the wrappers in a login shell, and is as before in the script"),
    Allowed("environment", r"SHLVL|_|OLDPWD", "the supervisor's shell is the script's parent"),
    Allowed("environment", r"SLURM_(TASK_PID|SRUN_COMM_PORT|STEP_LAUNCHER_PORT|LAUNCHER_PORT|STEP_RESV_PORTS|GTIDS)",
            "numbers of processes and ports"),
    Allowed("environment", r"SLURM_STEP(_)?ID", "the supervisor's own steps have numbers, too"),
    Allowed("environment", r"SLURM_JOB_DEPENDENCY", "singleton: Slurm itself never runs two jobs of one run"),
    Allowed("environment", r"SLURM_JOB_(START|END)_TIME", "times"),
    Allowed("environment", r"SLURM_JOB_SLUID", "the id of a job, from Slurm 26.05 on"),
    Allowed("option", r"JobName", "the run's id stands behind the name: Slurm itself keeps a run's jobs apart"),
    Allowed("option", r"Dependency|Requeue|Command|StdOut|StdErr",
            "how the run's jobs follow each other, and where the supervisor writes; the script sees what sbatch says"),
    Allowed("option", r"NodeList|BatchHost|TRES|NumCPUs", "which nodes were free"),
    Allowed("option", r"ArrayTaskThrottle", "each task of an array is a run of its own, as many of them at once"),
    Allowed("files", r"runs(/.*)?", "the run folder"),
    Allowed("log's mode", r".*", "the output is a link into the run folder, which is for its owner alone "
            "(`kill_switch.group` lets a group read it, docs/security.md)"),
)

SAID: tuple[Said, ...] = (
    Said("refused", r"2", r"(^|\n)(\S.*:\d+(:\d+)?|command line|environment|SBATCH_\w+): "),   # with its place
    Said("environment", r"SLURM_EXPORT_ENV|SLURM_GET_USER_ENV|MAIL", r"--export=\S+ sets env\."),
    Said("one log", r".*", r"--error=\S+: that file and the one of --output are links to one log"),
)


# Lines that count on neither side: srun says so where a step waits for the end of another one, a matter of
# milliseconds; and the log says what becomes of a job that the script submits (docs/scripts.md).
PASSING = re.compile(r"srun: (Job JOB step creation (temporarily|still) disabled, retrying.*|Step created for .*)|"
                     r"safelaunch: (sbatch( .*)?: another job, which safelaunch does not look after|"
                     r"scontrol requeue: the script ends, and is started again in this run)")
_TASKS = re.compile(r"srun: error: \S+: tasks? ([\d,-]+): (.*)")
_HOSTS = re.compile(r"(?<!\s-)\bn(\d+)\b|\bn\[([\d,-]+)\]")
_DEVICES = re.compile(r"\b(CUDA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|ZE_AFFINITY_MASK|"
                      r"SLURM_(?:JOB|STEP)_GPUS)=([\d,-]+)$")


def normal(text: str, hosts: Mapping[str, str] | None = None) -> str:
    """The text with what differs anyway put into one word each, and the job's own nodes by their names in `hosts`."""
    if text.startswith("BASH_FUNC_"):   # each bash on the way writes a function in its own words
        text = re.sub(r"[;\s]+", " ", text)
    for one in NORMAL:
        text = one.pattern.sub(one.word, text)
    text = _DEVICES.sub(lambda found: f"{found[1]}=({len(expand(found[2]))} of them)", text)
    if not hosts:
        return text

    def name(found: re.Match[str]) -> str:
        return ",".join(hosts.get(f"n{one}", f"n{one}") for one in expand(found[1] or found[2]))

    return _HOSTS.sub(name, text)


def unfolded(line: str) -> list[str]:
    """The lines that srun writes of tasks that it saw end at once, as if it had seen them one by one."""
    found = _TASKS.fullmatch(line)
    return [f"srun: error: task {number}: {found[2]}" for number in expand(found[1])] if found else [line]


def expand(numbers: str) -> list[str]:
    """The numbers of "0,2-4"."""
    found = []
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        found += [first] if not last else [str(one) for one in range(int(first), int(last) + 1)]
    return found


def is_allowed(kind: str, name: str) -> bool:
    """Whether a difference of this kind and name is in the list."""
    return any(one.kind == kind and re.fullmatch(one.name, name) for one in ALLOWED)
