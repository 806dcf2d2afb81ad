"""The numbers that ranks have in the whole training, where their launcher printed those they have on their node.

torchrun writes "[host:local rank]:" before a line, PyTorch "[rank17]:" with the rank of the training. Where it is known
which nodes the training runs on, in order, and how many ranks each has, both can be told apart and made one. Elsewhere
torchrun itself may tell the first rank of a node: in its summary of failed ranks, and at its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from safelaunch.why.findings import Finding, Line, Log, Progress

Layout = tuple[Sequence[str], int]   # the nodes in order, and how many ranks each has
OF_TASK = "of_task"   # a group: the line's task has several ranks
Spoken = TypeVar("Spoken", Finding, Line, Progress)


def to_global(log: Log, nodes: Sequence[str], per_node: int) -> Log:
    """The log with each rank's number in the training: node's place × ranks of a node + its number there."""
    place = {node: number for number, node in enumerate(nodes)}
    findings = _of_tasks(log.findings) if per_node > 1 else log.findings
    return replace(log, findings=_all(findings, place, per_node), progress=_all(log.progress, place, per_node),
                   last=_all(log.last, place, per_node))


def global_rank(host: str | None, rank: int | None, place: Mapping[str, int], per_node: int) -> int | None:
    """A rank's number in the training. One of another node's range is such a number already."""
    node = place.get(host or "")
    if node is None or rank is None or not 0 <= rank < per_node:
        return rank
    return node * per_node + rank


def by_launcher(log: Log) -> Log:
    """The log with ranks of the training on those nodes of which torchrun told the first one.

    A number below a node's first rank can only be one on the node; others are left, so that nothing is numbered twice.
    """
    first = _first_ranks(log.findings)
    if not first:
        return log

    def renumber(one: Spoken) -> Spoken:
        start = first.get(_short(one.host), 0)
        return one._replace(rank=one.rank + start) if one.rank is not None and one.rank < start else one

    return replace(log, findings=tuple(map(renumber, _of_tasks(log.findings))),
                   progress=tuple(map(renumber, log.progress)), last=tuple(map(renumber, log.last)))


def _of_tasks(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings where a task of srun's is a launcher, with ranks of its own: its number is no rank's."""
    return tuple(one._replace(groups={**one.groups, OF_TASK: ""}) if "task" in one.groups else one for one in findings)


def _first_ranks(findings: Iterable[Finding]) -> dict[str, int]:
    """Node → its first rank; a node that is told of in two ways is left out."""
    told: dict[str, set[int]] = {}
    host: str | None = None
    for found in findings:
        if found.rule == "elastic.host_line":
            host = found.groups["host"]
        elif found.rule == "elastic.rank_line" and host is not None:
            told.setdefault(_short(host), set()).add(int(found.groups["rank"]) - int(found.groups["number"]))
            host = None
        elif found.rule == "elastic.global_ranks" and found.host is not None:
            told.setdefault(_short(found.host), set()).add(int(found.groups["rank"]))
    return {node: next(iter(starts)) for node, starts in told.items() if len(starts) == 1}


def _short(host: str | None) -> str:
    return (host or "").split(".")[0]


def _all(spoken: Iterable[Spoken], place: Mapping[str, int], per_node: int) -> tuple[Spoken, ...]:
    return tuple(one._replace(rank=global_rank(one.host, one.rank, place, per_node)) for one in spoken)
