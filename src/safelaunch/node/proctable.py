"""Processes of one job on this node, and which of them are its ranks. Never by a broad name.

A process belongs to the job by its environment (SAFELAUNCH_MARK, SLURM_JOB_ID), and where that cannot be read by its
ancestors or its cgroup. Travels with node.collect as text: standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import re

from safelaunch.node import children

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Optional

MOST_BYTES = 1 << 16   # of a command line; Megatron's have 10 kB
STALL_S = 0.4    # an environment is read in 20 us
# Whose rank a process is: torchrun, accelerate, deepspeed and our srun launch say RANK; MPI's launchers their own.
RANK_KEYS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_KEPT = (*RANK_KEYS, "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_JOB_ID", "SLURMD_NODENAME", "SAFELAUNCH_MARK",
         "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "SLURM_NTASKS", "SLURM_LOCALID", "VIRTUAL_ENV",
         "CONDA_PREFIX", "PATH", "SAFELAUNCH_PYTHON", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE",
         "CUDA_VISIBLE_DEVICES")
_SHARED = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "VIRTUAL_ENV", "CONDA_PREFIX")
_PLUMBING = frozenset(("bash", "sh", "dash", "zsh", "tr", "sed", "stdbuf", "tee", "cat", "srun", "slurmstepd", "sleep",
                       "env", "timeout", "time", "numactl", "taskset", "nice", "mpirun", "orted", "prted",
                       "hydra_pmi_proxy", "starter", "starter-suid", "apptainer",
                       "singularity", "enroot", "enroot-nsenter", "podman", "podman-hpc", "conmon", "crun", "runc",
                       "fuse-overlayfs", "squashfuse_ll", "slirp4netns", "catatonit", "slurm_script",
                       "py-spy", "pystack", "gdb", "strace", "top", "raylet", "gcs_server"))
_LAUNCHERS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed", "ft_launcher", "horovodrun")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
                     "deepspeed.launcher.launch", "deepspeed.launcher.runner", "torch.distributed.elastic",
                     "nvidia_resiliency_ext.fault_tolerance.launcher")
# Of Ray's processes its workers alone are ranks; they call themselves ray::NAME.
_RAYS_OWN = re.compile(r"ray::IDLE|/ray/(?:_private|dashboard|autoscaler)/|/ray$")


class Process:
    """One line of /proc, and what its environment says; `env` None = it could not be read, for the reason in `why`."""

    def __init__(self, pid: int, ppid: int, state: str, comm: str, started: int, ticks: int) -> None:
        self.pid, self.ppid, self.state, self.comm, self.started, self.ticks = pid, ppid, state, comm, started, ticks
        self.env: Optional[dict[str, str]] = None
        self.words: list[str] = []
        self.parallel = ""   # of its command line, what is said on parallel groups
        self.why = ""


def read_stat(path: str) -> Process:
    """One process or thread, from its stat file, which is read without any of its locks; raises OSError, ValueError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        text = os.read(fd, 2048).decode(errors="replace")
    finally:
        os.close(fd)
    pid, _, rest = text.partition(" (")
    comm, _, rest = rest.rpartition(") ")
    words = rest.split()
    return Process(int(pid), int(words[1]), words[0], comm, int(words[19]), int(words[11]) + int(words[12]))


def read_table() -> dict[int, Process]:
    """pid → process, of the whole node but the kernel's own."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):   # it has just ended
                process = read_stat("/proc/%s/stat" % name)
                if process.pid != 2 and process.ppid != 2:
                    table[process.pid] = process
    return table


def read_words(pid: int) -> dict[str, Any]:
    """{"env", "words"} of a process, or {"why"}: runs in a child, it may hang."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            pairs = [pair.partition(b"=") for pair in file.read(1 << 20).split(b"\0")]
        env = {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read(MOST_BYTES).decode(errors="replace").split("\0")
    except OSError as error:
        return {"why": error.strerror or "unreadable"}
    kept = {key: env[key] for key in _KEPT if key in env}
    if "SAFELAUNCH_GUARD" in env:
        kept["guard"] = "1"
    return {"env": kept, "words": words[:24], "parallel": _parallel_words(words)}


def _parallel_words(words: list[str]) -> str:
    """Options such as "--tensor-model-parallel-size 4", whose value may be the next word."""
    found = []
    for word, following in zip(words, [*words[1:], ""]):  # noqa: B905 - 3.10's
        if "parallel" in word and len(word) < 80:
            found += [word] if "=" in word or not following.isdigit() else [word, following]
    return " ".join(found)[:400]


class Want:
    """Whose processes are meant: a job on a node as Slurm names it, and of a safelaunch run the start of its mark."""

    def __init__(self, job: str, node: str, mark: str = "", own_step: str = "", own_pid: int = 0) -> None:
        self.job, self.node, self.mark, self.own_step, self.own_pid = job, node, mark, own_step, own_pid

    def fits(self, env: Mapping[str, str]) -> bool:
        """Whether a process with this environment is meant; several nodes can share one process table (slurmd -N)."""
        if env.get("SLURM_JOB_ID") != self.job or env.get("SLURMD_NODENAME", self.node) != self.node:
            return False
        if self.own_step and env.get("SLURM_STEP_ID") == self.own_step:
            return False
        return env.get("SAFELAUNCH_MARK", "").startswith(self.mark)


def find_members(table: dict[int, Process], want: Want, until_s: float) -> tuple[dict[int, Process], list[int]]:
    """(the job's processes, pids whose /proc files hang); each member has `env`, or a reason why not."""
    uid = os.getuid()
    pids = [pid for pid in table if pid != want.own_pid and owner(pid) == uid]
    found, stuck = children.walk(pids, read_words, STALL_S, until_s)
    members = {}
    for index, said in found.items():
        process = table[pids[index]]
        process.env, process.words, process.why = said.get("env"), said.get("words", []), said.get("why", "")
        process.parallel = said.get("parallel", "")
        if process.env is not None and want.fits(process.env):
            members[process.pid] = process
    for index in stuck:
        table[pids[index]].why = "hangs: another thread of it holds its memory lock"
    for pid in pids:
        if table[pid].env is None and table[pid].state not in "X" and _is_kin(table, pid, members, want):
            members[pid] = table[pid]
    return _newest_attempt(members), [pids[index] for index in stuck]


def owner(pid: int) -> int:
    """The user of a process; -1: it is gone."""
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return -1


def _is_kin(table: Mapping[int, Process], pid: int, members: Mapping[int, Process], want: Want) -> bool:
    """Whether a process that hides its environment descends from a member, or sits in the job's cgroup."""
    stepds = {members[one].ppid for one in members if table.get(members[one].ppid, members[one]).comm == "slurmstepd"}
    for parent in _ancestors(table, pid):
        if parent in members:
            return True
        if parent in table and table[parent].comm == "slurmstepd":
            return parent in stepds or (not stepds and not want.mark and _is_stepd_of(parent, want.job))
        if parent in table and table[parent].env is not None:
            return False
    if want.mark:
        return False   # the cgroup is the job's, the mark an attempt's
    with contextlib.suppress(OSError), open("/proc/%d/cgroup" % pid) as file:
        return re.search(r"/job_%s/" % re.escape(want.job), file.read(4096)) is not None
    return False


def _is_stepd_of(pid: int, job: str) -> bool:
    """Whether a slurmstepd is that of a job's step, as it calls itself: "slurmstepd: [12.0]"."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read(256).startswith(b"slurmstepd: [%s." % job.encode())
    except OSError:
        return False


def _newest_attempt(members: dict[int, Process]) -> dict[int, Process]:
    """Of the marks RUN.JOB.N the processes of the last attempt, and what has none; a rank left behind is no rank."""
    numbers = {pid: int(mark.rpartition(".")[2]) for pid, process in members.items()
               for mark in [(process.env or {}).get("SAFELAUNCH_MARK", "")] if mark.rpartition(".")[2].isdigit()}
    last = max(numbers.values(), default=0)
    has_marks = bool(numbers)
    return {pid: process for pid, process in members.items()
            if numbers.get(pid) == last or process.env is None or not has_marks}


class RankProcess:
    """One rank: its number (None where nobody says), its process, and the processes below it."""

    def __init__(self, number: Optional[int], step: str, process: Process, env: dict[str, str]) -> None:
        self.number, self.step, self.process, self.env = number, step, process, env
        self.below: list[Process] = []


def find_ranks(table: Mapping[int, Process], members: Mapping[int, Process]) -> list[RankProcess]:
    """The ranks among a job's processes: of each rank's the topmost process that is no shell, launcher or guard."""
    named = {pid: process.env for pid, process in members.items() if process.env is not None}
    says_rank = any(key in env for env in named.values() for key in RANK_KEYS)
    steps = any("SLURM_STEP_ID" in env for env in named.values())
    groups: dict[tuple[str, str], list[Process]] = {}
    hidden = []
    for pid, process in members.items():
        env = named.get(pid)
        if env is None:
            hidden.append(process)
            continue
        number = _rank_of(env, says_rank)
        if number is not None and (not steps or "SLURM_STEP_ID" in env):
            groups.setdefault((env.get("SLURM_STEP_ID", "batch"), number), []).append(process)
    ranks = []
    for (step, number), processes in groups.items():
        top = _top(members, [process for process in processes if may_be_rank(process)])
        if top is not None:
            ranks.append(RankProcess(int(number), step, top, named[top.pid]))
    ranks += _hidden_ranks(table, members, named, ranks, [p for p in hidden if may_be_rank(p)])
    chosen = {rank.process.pid: rank for rank in ranks}
    for process in members.values():
        above = next((pid for pid in _ancestors(table, process.pid) if pid in chosen), None)
        if above is not None and process.pid not in chosen:
            chosen[above].below.append(process)
    return sorted(ranks, key=lambda rank: (rank.step, -1 if rank.number is None else rank.number))


def _rank_of(env: Mapping[str, str], says_rank: bool) -> Optional[str]:
    keys = RANK_KEYS if says_rank else ("SLURM_PROCID",)   # torchrun itself has srun's number, its ranks their own
    return next((env[key] for key in keys if env.get(key, "").isdigit()), None)


def may_be_rank(process: Process) -> bool:
    """Whether it is a program of the training, and no shell, pipe, launcher, guard or supervisor around it."""
    if process.comm in _PLUMBING or (process.env or {}).get("guard"):
        return False
    names = [os.path.basename(word) for word in process.words[:4]]
    if any(name in _LAUNCHERS for name in names) or any(word in _LAUNCHER_MODULES for word in process.words[:5]):
        return False
    if any(_RAYS_OWN.search(word) for word in process.words[:4]):
        return False
    return not any("safelaunch.loop" in word or word.endswith(("/safelaunch/injob.py", "/node/pump.py"))
                   for word in process.words[:8])


def _ancestors(table: Mapping[int, Process], pid: int) -> Iterable[int]:
    for _ in range(64):
        if pid not in table:
            return
        pid = table[pid].ppid
        yield pid


def _top(members: Mapping[int, Process], candidates: list[Process]) -> Optional[Process]:
    """The candidate nearest to the root; a Python before another program, a living one before a zombie."""
    def order(process: Process) -> tuple[bool, bool, int, int]:
        depth = sum(1 for pid in _ancestors(members, process.pid) if pid in members)
        return process.state == "Z", not is_python(process), depth, process.started

    return min(candidates, key=order, default=None)


def is_python(process: Process) -> bool:
    """Whether it is a Python interpreter, by its own name or the first word of its command line."""
    first = os.path.basename(process.words[0]) if process.words else ""
    return process.comm.startswith(("python", "pt_main_thread")) or first.startswith("python")


def _hidden_ranks(table: Mapping[int, Process], members: Mapping[int, Process], named: Mapping[int, dict[str, str]],
                  ranks: list[RankProcess], hidden: list[Process]) -> list[RankProcess]:
    """Ranks that hide their environment (PR_SET_DUMPABLE, D state): its number is told by an ancestor, or by what is
    missing among the ranks of its launcher.
    """
    taken = {pid for rank in ranks for pid in (rank.process.pid, *_ancestors(table, rank.process.pid))}
    found: list[RankProcess] = []
    for process in hidden:
        above = [pid for pid in _ancestors(table, process.pid) if pid in members]
        is_below = any(pid in {one.process.pid for one in (*ranks, *found)} for pid in above)
        if is_below or process.pid in taken:
            continue
        env = next((named[pid] for pid in above if pid in named), {})
        number = next((env[key] for key in RANK_KEYS if env.get(key, "").isdigit()), None)
        found.append(RankProcess(None if number is None else int(number), env.get("SLURM_STEP_ID", "?"), process,
                                 dict(env)))
    unnamed = [rank for rank in found if rank.number is None]
    _number_by_elimination(ranks, unnamed)
    return found


def _number_by_elimination(ranks: list[RankProcess], unnamed: list[RankProcess]) -> None:
    """Give nameless ranks the numbers that are missing on this node, where its ranks are numbered in a row."""
    rows = [(rank.number, rank.env.get("LOCAL_RANK") or rank.env.get("SLURM_LOCALID", ""), rank.env) for rank in ranks]
    known = [(number - int(local), env) for number, local, env in rows if number is not None and local.isdigit()]
    if not known or not unnamed or len({base for base, _ in known}) != 1:
        return
    base, like = known[0]
    size = like.get("LOCAL_WORLD_SIZE", "")
    here = range(base, base + (int(size) if size.isdigit() else len(ranks) + len(unnamed)))
    missing = sorted(set(here) - {rank.number for rank in ranks})
    kept = {key: value for key, value in like.items() if key in _SHARED}
    for rank, free in zip(sorted(unnamed, key=lambda rank: rank.process.pid), missing):  # noqa: B905 - 3.10's
        rank.number, rank.step, rank.env = free, like.get("SLURM_STEP_ID", "batch"), dict(kept)
