"""What nodes report of a job's ranks (node.collect), as values.

A stack is a tuple of texts as py-spy prints them, "broadcast (torch/distributed/distributed_c10d.py:1191)", innermost
first. Equal stacks of one read are one object, so that a hundred thousand ranks are compared by identity.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from safelaunch.errors import ParseError

Stack = tuple[str, ...]

# Where Python waits for the autograd engine, whose own thread runs the hooks: FSDP's and DDP's collectives are there.
_BACKWARD = "_engine_run_backward (torch/autograd/graph.py"


class KernelPlace(NamedTuple):
    """Where the kernel has a thread, or a process below a rank; "" for what it does not tell."""

    pid: int
    name: str
    state: str
    wchan: str = ""
    call: str = ""
    path: str = ""
    mount: str = ""
    fs: str = ""


class Life(NamedTuple):
    """Counters of a rank: context switches of its main thread, bytes read and written, page faults, CPU seconds of its
    child processes. Also how often its threads for backward passes went idle.
    """

    switches: float
    moved: float
    faults: float
    below_s: float
    rests: float = 0.0
    t: float = 0.0      # of its node's own clock


class ObservedRank(NamedTuple):
    """One rank as its node saw it. `number` None = unknown; `samples`: its stack in each sample, () = none, for the
    reason in `why`. Between the first sample and the last: `cpu` = share of a core, `ran` = its main thread ran.
    """

    number: int | None
    node: str
    pid: int
    states: str = "S"                  # its state at each look, as ps writes it
    samples: tuple[Stack, ...] = ()
    why: str = ""
    hint: str = ""
    main: KernelPlace | None = None
    blocked: tuple[KernelPlace, ...] = ()    # other threads in D state or stopped
    below: tuple[KernelPlace, ...] = ()      # processes below it: data loaders, compilers
    kernel: tuple[str, ...] = ()
    cpu: float | None = None
    world: int | None = None
    step: str = ""
    gpu_util: float | None = None
    mounts: tuple[str, ...] = ()       # on which it has files open
    ran: bool | None = None
    flight: int | None = None          # the flight recorder's number of its newest collective
    life: tuple[Life, ...] = ()        # at each look
    parallel: str = ""                 # what its command line says on parallel groups

    @property
    def stuck_in(self) -> KernelPlace | None:
        """Where it sleeps in D state: itself, in each sample (all I/O does for a moment), else one of its threads."""
        if self.main is not None and self.main.state == "D" and not self.states.strip("D"):
            return self.main
        return next((place for place in self.blocked if place.state == "D"), None)

    @property
    def is_gone(self) -> bool:
        """It is a zombie, or it ended during the check."""
        return self.states[-1:] in ("Z", "X")

    @property
    def has_just_ended(self) -> bool:
        """It existed when the check began: its parent may be about to go on."""
        return self.is_gone and self.states.strip("Z") != ""

    @property
    def is_stopped(self) -> bool:
        return self.states[-1:] in ("T", "t")

    @property
    def name(self) -> str:
        return f"rank {'?' if self.number is None else self.number} on {self.node}"


class NodeReport(NamedTuple):
    """One node's report; `mounts`: (mount point, "ok" | "late" | error) of those that were touched."""

    node: str
    ranks: tuple[ObservedRank, ...]
    mounts: tuple[tuple[str, str], ...] = ()
    gpus: str = ""                     # what nvidia-smi answered: ok, absent, late, or words
    idle_gpus: tuple[str, ...] = ()    # indexes at 0 % on a node where others are busy
    ras: str = ""
    notes: tuple[str, ...] = ()
    took_s: float = 0.0
    processes: int = 0
    left: tuple[Mapping[str, Any], ...] = ()   # rows of node.leftovers
    cores: Mapping[str, Any] | None = None     # node.cores.look, where it was asked for


class ReportReader:
    """Reads reports; equal stacks of all nodes become one object."""

    def __init__(self) -> None:
        self._known: dict[Stack, Stack] = {}

    def read(self, line: str, node: str = "") -> NodeReport:
        """A node's report from its line; raises ParseError. `node`: who was asked."""
        try:
            report = json.loads(line)
            return self._report(report, node or str(report["node"]))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise ParseError(f"not a report of node {node}: {line[:200]!r} ({error})") from error

    def _report(self, report: Mapping[str, Any], node: str) -> NodeReport:
        if report["v"] != 1:
            raise ParseError(f"a report of another version: {report['v']!r}")
        frames = report.get("frames", [])
        stacks = [self._one(tuple(frames[index] for index in stack)) for stack in report.get("stacks", [])]
        gpus = report.get("gpus") or {"answer": "", "gpus": []}
        utils = {pid: gpu["util"] for gpu in gpus["gpus"] for pid in gpu["pids"]}
        ranks = tuple(self._rank(row, node, stacks, utils) for row in report["ranks"])
        busy = [gpu["util"] or 0 for gpu in gpus["gpus"]]
        is_busy = max(busy, default=0) >= 90
        idle = tuple(str(gpu["index"]) for gpu in gpus["gpus"] if is_busy and gpu["util"] == 0)
        return NodeReport(
            node, ranks, tuple(sorted(report.get("mounts", {}).items())), gpus["answer"], idle, report.get("ras", ""),
            tuple(report.get("notes", ())), float(report.get("took_s", 0.0)), int(report.get("processes", 0)),
            tuple(report.get("left", ())), report.get("cores"))

    def _one(self, stack: Stack) -> Stack:
        return self._known.setdefault(stack, stack)

    def _rank(self, row: Mapping[str, Any], node: str, stacks: Sequence[Stack],
              utils: Mapping[int, float]) -> ObservedRank:
        states, pid = row.get("states", ""), row["pid"]
        samples = tuple(self._one(logical_stack([(t[0], t[1] == pid, stacks[t[4]]) for t in threads]))
                        for threads in row.get("samples", ()))
        below = tuple(_place(one) for one in row.get("below", ()))
        flight = ((row.get("flight") or {}).get("last") or {}).get("seq")
        return ObservedRank(
            row["rank"], node, pid, states or row["state"], samples, row.get("why", ""), row.get("hint", ""),
            _place(row), tuple(_place(one) for one in row.get("blocked", ())), below, tuple(row.get("kernel", ())),
            _cpu_share(row.get("cpu", ())), row.get("world"), str(row.get("step", "")),
            next((utils[one] for one in (pid, *(place.pid for place in below)) if one in utils), None),
            tuple(sorted(row.get("mounts", ()))), _ran(row.get("switches", ())), flight,
            tuple(Life(switches, *one[:4])._replace(t=point[0]) for switches, one, point in zip(
                row.get("switches", ()), row.get("life", ()), row.get("cpu", ()), strict=False)),
            row.get("parallel", ""))


def keep_main_step(reports: Sequence[NodeReport]) -> tuple[NodeReport, ...]:
    """The same without the processes of other steps: a person's shell beside the training has a rank too."""
    counts = Counter(rank.step for report in reports for rank in report.ranks)
    if len(counts) < 2:
        return tuple(reports)
    main = max(counts, key=lambda step: (counts[step], step))
    return tuple(_without_others(report, main) for report in reports)


def _without_others(report: NodeReport, main: str) -> NodeReport:
    kept = tuple(rank for rank in report.ranks if rank.step == main)
    left_out = len(report.ranks) - len(kept)
    notes = (f"{left_out} processes of other steps than {main} were left out",) if left_out else ()
    return report._replace(ranks=kept, notes=(*report.notes, *notes))


def logical_stack(threads: Sequence[tuple[str, bool, Stack]]) -> Stack:
    """The stack that shows what a process does: (name, is main, stack) of its threads → the main thread's. If that
    waits for the autograd engine, the frames of the thread that runs its hook go on top. Without frames of a main
    thread the first thread counts.
    """
    main = next((stack for name, is_main, stack in threads if stack and (is_main or name == "MainThread")), ())
    if main and any(frame.startswith(_BACKWARD) for frame in main[:3]):
        hooks = [stack for _, _, stack in threads if stack and stack is not main
                 and any("torch/" in frame for frame in stack[:8])
                 and not stack[-1].startswith(("Thread._bootstrap", "_bootstrap"))]
        return hooks[0] + main if hooks else main
    return main or next((stack for _, _, stack in threads if stack), ())


def _place(row: Mapping[str, Any]) -> KernelPlace:
    words = [str(row.get(key, "")) for key in ("name", "state", "wchan", "call", "path", "mount", "fs")]
    return KernelPlace(int(row.get("tid") or row.get("pid") or 0), *words)


def _ran(switches: Sequence[int]) -> bool | None:
    return len(set(switches)) > 1 if len(switches) > 1 else None


def _cpu_share(points: Iterable[Sequence[float]]) -> float | None:
    rows = list(points)
    if len(rows) < 2 or rows[-1][0] <= rows[0][0]:
        return None
    return round((rows[-1][1] - rows[0][1]) / (rows[-1][0] - rows[0][0]), 2)
