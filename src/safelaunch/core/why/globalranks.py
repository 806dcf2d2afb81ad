"""The numbers that ranks have in the whole training, where their launcher printed those they have on their node.

torchrun writes "[host:local rank]:" before a line, PyTorch "[rank17]:" with the rank of the training. Where it is known
which nodes the training runs on, in order, and how many ranks each has, both can be told apart and made one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from safelaunch.core.why.findings import Finding, Line, Log, Progress

Layout = tuple[Sequence[str], int]   # the nodes in order, and how many ranks each has
Spoken = TypeVar("Spoken", Finding, Line, Progress)


def to_global(log: Log, nodes: Sequence[str], per_node: int) -> Log:
    """The log with each rank's number in the training: node's place × ranks of a node + its number there."""
    place = {node: number for number, node in enumerate(nodes)}
    return replace(log, findings=_all(log.findings, place, per_node), progress=_all(log.progress, place, per_node),
                   last=_all(log.last, place, per_node))


def global_rank(host: str | None, rank: int | None, place: Mapping[str, int], per_node: int) -> int | None:
    """A rank's number in the training. One of another node's range is such a number already."""
    node = place.get(host or "")
    if node is None or rank is None or not 0 <= rank < per_node:
        return rank
    return node * per_node + rank


def _all(spoken: Iterable[Spoken], place: Mapping[str, int], per_node: int) -> tuple[Spoken, ...]:
    return tuple(one._replace(rank=global_rank(one.host, one.rank, place, per_node)) for one in spoken)
