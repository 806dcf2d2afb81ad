"""Every long option of sbatch, and which of them safelaunch sets itself.

Source: sbatch(1) of Slurm 22.05, which this project is tested on; the later ones, each with its release, from the
manual pages since. An option that is missing here still passes: see config/scripts/slurmkeys.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:   # the supervisor reads this table, and no config
    from safelaunch.base.yaml.yamlnodes import Origin


class Option(NamedTuple):
    """What one option takes: `none`, `optional`, `required`, or `count` (required, and a whole number ≥ 1)."""

    takes: str
    letter: str = ""
    is_list: bool = False  # sbatch wants a,b,c: a YAML list is joined so


class GivenOption(NamedTuple):
    """One option from wherever sbatch reads it: a line of the script, the environment, the command line. `name` is its
    long one, `value` None where it has none, `shown` as its writer knows it; `fault`: why sbatch would not take it.
    """

    place: Origin
    shown: str
    name: str
    value: str | None
    fault: str = ""


_NONE = Option("none")
_OPTIONAL = Option("optional")
_REQUIRED = Option("required")
_COUNT = Option("count")
_LIST = Option("required", "", True)

OPTIONS: dict[str, Option] = {
    "account": Option("required", "A", True),
    "acctg-freq": _LIST,
    "array": Option("required", "a", True),
    "autocomplete": _REQUIRED,
    "batch": _REQUIRED,
    "bb": _REQUIRED,
    "bbf": _REQUIRED,
    "begin": Option("required", "b"),
    "chdir": Option("required", "D"),
    "cluster-constraint": _LIST,
    "clusters": Option("required", "M", True),
    "comment": _REQUIRED,
    "consolidate-segments": _NONE,  # 25.11
    "constraint": Option("required", "C"),
    "context": _REQUIRED,  # SELinux; on no page
    "container": _REQUIRED,
    "container-id": _REQUIRED,  # 23.02
    "contiguous": _NONE,
    "core-spec": Option("required", "S"),
    "cores-per-socket": _REQUIRED,
    "cpu-freq": _REQUIRED,
    "cpus-per-gpu": _COUNT,
    "cpus-per-task": Option("count", "c"),
    "deadline": _REQUIRED,
    "delay-boot": _REQUIRED,
    "dependency": Option("required", "d"),
    "distribution": Option("required", "m"),
    "error": Option("required", "e"),
    "exclude": Option("required", "x", True),
    "exclusive": _OPTIONAL,
    "export": _LIST,
    "export-file": _REQUIRED,
    "external": _NONE,  # 25.05
    "extra": _REQUIRED,  # 23.02
    "extra-node-info": Option("required", "B"),
    "get-user-env": _OPTIONAL,
    "gid": _REQUIRED,
    "gpu-bind": _REQUIRED,
    "gpu-freq": _REQUIRED,
    "gpus": Option("required", "G", True),
    "gpus-per-node": _LIST,
    "gpus-per-socket": _LIST,
    "gpus-per-task": _LIST,
    "gres": _LIST,
    "gres-flags": _LIST,
    "help": Option("none", "h"),
    "hint": _REQUIRED,
    "hold": Option("none", "H"),
    "ignore-pbs": _NONE,
    "input": Option("required", "i"),
    "job-name": Option("required", "J"),
    "kill-on-invalid-dep": _REQUIRED,
    "licenses": Option("required", "L", True),
    "mail-type": _LIST,
    "mail-user": _REQUIRED,
    "mcs-label": _REQUIRED,
    "mem": _REQUIRED,
    "mem-bind": _LIST,
    "mem-per-cpu": _REQUIRED,
    "mem-per-gpu": _REQUIRED,
    "mincpus": _REQUIRED,
    "network": _LIST,
    "nice": _OPTIONAL,
    "no-kill": Option("optional", "k"),
    "no-requeue": _NONE,
    "nodefile": Option("required", "F"),
    "nodelist": Option("required", "w", True),
    "nodes": Option("count", "N"),
    "ntasks": Option("count", "n"),
    "ntasks-per-core": _COUNT,
    "ntasks-per-gpu": _COUNT,
    "ntasks-per-node": _COUNT,
    "ntasks-per-socket": _COUNT,
    "ntasks-per-tres": _COUNT,  # on no page
    "oom-kill-step": _OPTIONAL,  # 24.05
    "open-mode": _REQUIRED,
    "output": Option("required", "o"),
    "overcommit": Option("none", "O"),
    "oversubscribe": Option("none", "s"),
    "parsable": _NONE,
    "partition": Option("required", "p", True),
    "power": _REQUIRED,
    "prefer": _REQUIRED,
    "priority": _REQUIRED,
    "profile": _LIST,
    "propagate": Option("optional", "", True),
    "qos": Option("required", "q", True),
    "quiet": Option("none", "Q"),
    "reboot": _NONE,
    "requeue": _OPTIONAL,  # a value from 25.11 on
    "reservation": _LIST,
    "resources": _LIST,  # 25.11
    "resv-ports": _OPTIONAL,  # 23.11
    "segment": _REQUIRED,  # 24.05
    "signal": _REQUIRED,
    "sockets-per-node": _REQUIRED,
    "spread-job": _NONE,
    "spread-segments": _NONE,  # 25.11
    "stepmgr": _NONE,  # 24.05
    "switches": _REQUIRED,
    "test-only": _NONE,
    "thread-spec": _REQUIRED,
    "threads-per-core": _REQUIRED,
    "time": Option("required", "t"),
    "time-min": _REQUIRED,
    "tmp": _REQUIRED,
    "tres-bind": _LIST,  # 23.11
    "tres-per-task": _LIST,  # 23.11
    "uid": _REQUIRED,
    "usage": _NONE,
    "use-min-nodes": _NONE,
    "verbose": Option("none", "v"),
    "version": Option("none", "V"),
    "wait": Option("none", "W"),
    "wait-all-nodes": _REQUIRED,
    "wckey": _REQUIRED,
    "wrap": _REQUIRED,
}

# Other names that sbatch takes, on no page: each is found by `sbatch --c`, "is ambiguous; possibilities: …".
ALIASES: dict[str, str] = {"cluster": "clusters", "tasks-per-node": "ntasks-per-node"}

# Plugins of sites that start the whole batch script in a container: pyxis, CSCS's container engine, singularity-exec.
_INTO_CONTAINER = ("container-", "singularity-", "apptainer-", "environment")
_BOX = ("it would put the batch script, and so safelaunch itself, into the container; a training is put into one by "
        "container: in train.yaml (docs/containers.md), or by the same option at srun in a script")

_LOG = "safelaunch keeps the log in the run folder (run_dir), one for each attempt; see `safelaunch logs`"
_RESTART = "safelaunch restarts the run itself, and two restarts of one run would meet; see restart:"
_ENV = "use env: for variables; the environment of the submit is kept for every job of the run"
_TALK = "safelaunch reads what sbatch prints"
_ONE_CLUSTER = "a run stays on the cluster where it is submitted; submit from a login node of the one you want"
_ONE_RUN = "not a setting of a job"

# Options that safelaunch sets itself, or that would break what it promises: why, and what to write instead.
REFUSED: dict[str, str] = {
    "job-name": "use name: (the job's name is made from it, and must be the run's own)",
    "output": _LOG,
    "error": _LOG,
    "open-mode": _LOG,
    "input": "the batch script is safelaunch's; write `< file` in command:",
    "wrap": "use command:",
    "requeue": _RESTART,
    "no-requeue": _RESTART,
    "no-kill": "safelaunch sets it always: a dead node must not end the job before it has been judged",
    "signal": "safelaunch has its own warning before the time limit; kill_switch.signal is the one for your program",
    "kill-on-invalid-dep": "the jobs of a run depend on each other, and safelaunch sets what becomes of them",
    "array": "use sweep: (docs/sweeps.md): one run for each value",
    "clusters": _ONE_CLUSTER,
    "cluster-constraint": _ONE_CLUSTER,
    "export": _ENV,
    "export-file": _ENV,
    "get-user-env": _ENV,
    "container": _BOX,
    "container-id": _BOX,
    "external": "such a job has no script, and so nobody to supervise it",
    "ignore-pbs": "the script holds no #PBS lines",
    "parsable": _TALK,
    "quiet": _TALK,
    "verbose": _TALK,
    "wait": "use `safelaunch submit --wait`",
    "test-only": "use `safelaunch submit --dry-run`",
    "autocomplete": _ONE_RUN,
    "help": _ONE_RUN,
    "usage": _ONE_RUN,
    "version": _ONE_RUN,
}



def why_refused(name: str) -> str | None:
    """Why this option is not a user's to set, or None; also of options that plugins of sites have."""
    return REFUSED.get(name) or (_BOX if name.startswith(_INTO_CONTAINER) and name not in OPTIONS else None)


LETTERS: dict[str, str] = {option.letter: name for name, option in OPTIONS.items() if option.letter}

# For a person's first job only: its successors must neither be held nor wait for the same moment or job again.
FIRST_JOB_ONLY = frozenset(("hold", "begin", "dependency"))

_SRUN_LOG = "safelaunch reads the ranks' output through srun"
_SRUN_NODES = "safelaunch chooses the nodes of each attempt; use slurm:"
_SRUN_OWNED: dict[tuple[str, ...], str] = {
    ("--output", "-o", "--error", "-e", "--label", "-l", "--open-mode", "--input", "-i", "--pty"): _SRUN_LOG,
    ("--nodes", "-N", "--nodelist", "-w", "--nodefile", "-F", "--exclude", "-x", "--relative", "-r"): _SRUN_NODES,
    ("--ntasks", "-n", "--ntasks-per-node", "--cpus-per-task", "-c"): "set it under slurm:",
    ("--wait", "-W"): "use srun.wait",
    ("--kill-on-bad-exit", "-K"): "use srun.kill_on_bad_exit",
    ("--jobid", "--overlap", "--job-name", "-J", "--no-kill", "-k", "--no-allocate", "-Z", "--immediate", "-I"):
        "safelaunch sets it for each attempt",
    ("--export", "--export-file"): "use env:",
    ("--multi-prog", "--het-group"): "one command for all ranks",
    ("--test-only", "--help", "-h", "--usage", "--version", "-V"): _ONE_RUN,
}


def owned_srun_flag(flag: str) -> str | None:
    """Why one of srun's flags is not the user's to set in srun.extra, or None."""
    if not flag.startswith("-") or flag in ("-", "--"):
        return None
    if not flag.startswith("--"):
        return next((reason for names, reason in _SRUN_OWNED.items() if flag[:2] in names), None)
    name = flag.partition("=")[0]   # srun, too, takes a beginning of a long option for the whole
    return next((reason for names, reason in _SRUN_OWNED.items() if any(one.startswith(name) for one in names)), None)
