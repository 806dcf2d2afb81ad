"""Many runs on one page: what time was lost to which cause and on which node. Values in, values out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from safelaunch.run.fold.state import Attempt
from safelaunch.status.shares import KINDS, QUEUE, START, UNREAD, USEFUL, Span
from safelaunch.why.categories import TABLE

FIRST = "first start"     # of time before the first attempt: it has no cause
UNEXPLAINED = "unknown"
DAY_S = 86400.0


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


def lost_by_cause(runs: Sequence[Mapping[str, Any]]) -> list[LostTime]:
    """The causes of all runs (`lost` and `failures` of each), the most node-hours first."""
    seconds: dict[str, float] = defaultdict(float)
    on_nodes: dict[str, float] = defaultdict(float)
    failures: dict[str, int] = defaultdict(int)
    for run in runs:
        for row in run["lost"]:
            seconds[row["cause"]] += row["seconds"]
            on_nodes[row["cause"]] += row["seconds"] * run["nodes"] * (row["kind"] != QUEUE)
        for row in run["failures"]:
            failures[row["cause"]] += 1
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


def lost_by_node(runs: Sequence[Mapping[str, Any]]) -> list[NodeLoss]:
    """All nodes that were used (`days` of each run), those that most time was lost to first."""
    days: dict[str, float] = defaultdict(float)
    failures: dict[str, int] = defaultdict(int)
    lost: dict[str, float] = defaultdict(float)
    causes: dict[str, dict[str, None]] = defaultdict(dict)
    for run in runs:
        for node, used in run["days"].items():
            days[node] += used
        for row in run["failures"]:
            for node in row["nodes"]:
                failures[node] += 1
                lost[node] += row["lost_s"]
                causes[node][row["cause"]] = None
    found = [NodeLoss(node, failures[node], days[node], lost[node], tuple(causes[node])) for node in days]
    return sorted(found, key=lambda one: (-one.lost_s, -one.failures, one.node))


def is_of_node(cause: str) -> bool:
    """Whether failures of this cause are evidence against a node."""
    row = TABLE.get(cause)
    return row is not None and row.blame is not None


def node_seconds(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Node-seconds of each kind of time; in the queue there were no nodes."""
    return {kind: sum(run["seconds"][kind] * run["nodes"] for run in runs) * (kind != QUEUE) for kind in KINDS}
