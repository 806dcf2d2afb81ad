"""Many runs on one page: what time was lost to which cause and on which node. Values in, values out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from safelaunch.base.jsonform import to_json
from safelaunch.report.tuning import SaveAdvice
from safelaunch.run.fold.state import Attempt
from safelaunch.status.shares import KINDS, QUEUE, START, UNREAD, USEFUL, Span
from safelaunch.why.categories import TABLE

VERSION = 1
FIRST = "first start"     # of time before the first attempt: it has no cause
UNEXPLAINED = "unknown"
DAY_S = 86400.0


class LostSpan(NamedTuple):
    """A span that made no new steps, and its cause."""

    cause: str
    kind: str
    seconds: float


class RunFailure(NamedTuple):
    """A failed attempt, the nodes that it is laid to, and the time lost to it."""

    cause: str
    nodes: tuple[str, ...]
    lost_s: float
    has_steps: bool
    t: float | None


class MonthOfRun(NamedTuple):
    """What one run did in the window. `seconds`: of each kind; `days`: of use of each node; `job_s`: its longest
    job.
    """

    name: str
    run_id: str
    run_dir: str
    cluster: str
    owner: str
    since_t: float
    until_t: float
    ended: str | None
    nodes: int
    step: int | None
    restarts: int
    seconds: Mapping[str, float]
    lost: tuple[LostSpan, ...]
    failures: tuple[RunFailure, ...]
    days: Mapping[str, float]
    save_cost_s: float | None
    saves_apart_s: float | None
    restart_s: float
    job_s: float


def run_of(row: Mapping[str, Any]) -> MonthOfRun:
    """That of a child, which answers in JSON."""
    return MonthOfRun(**{**row, "lost": tuple(LostSpan(**one) for one in row["lost"]),
                         "failures": tuple(RunFailure(**one) for one in row["failures"])})


@dataclass(frozen=True)
class LostTime:
    """Time that was lost to one cause: on the clock, and times its nodes."""

    cause: str
    seconds: float
    node_seconds: float
    failures: int


def clip(spans: Iterable[Span], since_t: float) -> list[Span]:
    """The spans from `since_t` on."""
    return [span._replace(start_t=max(span.start_t, since_t)) for span in spans if span.end_t > since_t]


def causes_of(spans: Sequence[Span], attempts: Sequence[Attempt]) -> list[tuple[Span, str, int | None]]:
    """Each span that made no new steps, with its cause and the attempt whose end it follows from. The end of an attempt
    is its own doing; its start, and steps that it makes again, are its predecessor's.
    """
    known = {one.number: one for one in attempts}
    before: int | None = None      # the last attempt that had begun
    found = []
    for span in spans:
        number = span.attempt
        if number is not None and number in known:
            is_start = span.kind in (START, "redone")
            by = max((one for one in known if one < number), default=None) if is_start else number
            before = number
        else:
            by = before
        if span.kind not in (USEFUL, UNREAD):
            found.append((span, _cause(known[by]) if by is not None else FIRST, by))
    return found


def _cause(attempt: Attempt) -> str:
    """Its category, else how it ended: a time limit, a person's stop."""
    if attempt.category is not None:
        return attempt.category
    return UNEXPLAINED if attempt.has_failed or attempt.ended is None else str(attempt.ended)


def lost_by_cause(runs: Sequence[MonthOfRun]) -> list[LostTime]:
    """The causes of all runs (`lost` and `failures` of each), the most node-hours first."""
    seconds: dict[str, float] = defaultdict(float)
    on_nodes: dict[str, float] = defaultdict(float)
    failures: dict[str, int] = defaultdict(int)
    for run in runs:
        for one in run.lost:
            seconds[one.cause] += one.seconds
            on_nodes[one.cause] += one.seconds * run.nodes * (one.kind != QUEUE)
        for failure in run.failures:
            failures[failure.cause] += 1
    found = [LostTime(cause, seconds[cause], on_nodes[cause], failures[cause]) for cause in {**seconds, **failures}]
    return sorted(found, key=lambda one: (-one.node_seconds, -one.seconds, one.cause))


@dataclass(frozen=True)
class NodeLoss:
    """A node that failures are laid to: how many, how long it was used, and the time lost to them."""

    node: str
    failures: int
    days: float
    lost_s: float
    causes: tuple[str, ...]


def lost_by_node(runs: Sequence[MonthOfRun]) -> list[NodeLoss]:
    """All nodes that were used (`days` of each run), those that most time was lost to first."""
    days: dict[str, float] = defaultdict(float)
    failures: dict[str, int] = defaultdict(int)
    lost: dict[str, float] = defaultdict(float)
    causes: dict[str, dict[str, None]] = defaultdict(dict)
    for run in runs:
        for node, used in run.days.items():
            days[node] += used
        for failure in run.failures:
            for node in failure.nodes:
                failures[node] += 1
                lost[node] += failure.lost_s
                causes[node][failure.cause] = None
    found = [NodeLoss(node, failures[node], days[node], lost[node], tuple(causes[node])) for node in days]
    return sorted(found, key=lambda one: (-one.lost_s, -one.failures, one.node))


def is_of_node(cause: str) -> bool:
    """Whether failures of this cause are evidence against a node."""
    row = TABLE.get(cause)
    return row is not None and row.blame is not None


def node_seconds(runs: Sequence[MonthOfRun]) -> dict[str, float]:
    """Node-seconds of each kind of time; in the queue there were no nodes."""
    return {kind: sum(run.seconds[kind] * run.nodes for run in runs) * (kind != QUEUE) for kind in KINDS}


class FoundRate(NamedTuple):
    """Failures in node-days; node-days between two of them, with their 95 % interval."""

    failures: int
    node_days: float
    mtbf_days: float
    mtbf_low_days: float
    mtbf_high_days: float


class NodeRow(NamedTuple):
    """A node that failures are laid to; `expected` and `probability`: how sure it is that it fails too often."""

    node: str
    failures: int
    days: float
    lost_s: float
    causes: tuple[str, ...]
    expected: float | None
    probability: float | None
    rate: FoundRate | None


class Advice(NamedTuple):
    """How often a run is to save, and how many spares it needs. `cost_is_known`: by the run's own steps."""

    name: str
    run_id: str
    nodes: int
    mtbf_s: float
    cost_is_known: bool
    saves: tuple[SaveAdvice, ...]
    job_s: float
    spares: int | None


class RunRow(NamedTuple):
    """A run's line."""

    name: str
    run_id: str
    run_dir: str
    cluster: str
    owner: str
    since_t: float
    until_t: float
    ended: str | None
    nodes: int
    step: int | None
    restarts: int
    seconds: Mapping[str, float]
    failures: int
    causes: Mapping[str, int]
    goodput: float | None


class Month(NamedTuple):
    """All runs of a window. Each field is one of `report --all --json` (docs/report.md)."""

    since_t: float
    until_t: float
    notes: tuple[str, ...]
    runs: int
    nodes_used: int
    node_days: float
    failures: int
    goodput: float | None
    goodput_with_nodes: float | None
    node_seconds: Mapping[str, float]
    queue_node_seconds: float
    lost_by_cause: tuple[LostTime, ...]
    lost_by_node: tuple[NodeRow, ...]
    failures_of_nodes: FoundRate | None
    failures_of_runs: FoundRate | None
    advice: tuple[Advice, ...]
    table: tuple[RunRow, ...]

    def to_json(self) -> dict[str, Any]:
        """The object of `report --all --json`."""
        return {"v": VERSION, **to_json(self)}
