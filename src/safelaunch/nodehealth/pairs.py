"""Which node is badly connected, by the bus bandwidth of pairs of nodes in two rounds.

First disjoint pairs. Then each node of a bad pair with a node of a good one: whose second pair is bad as well is to
blame. A pair that fails or hangs is bad; one that could not be measured (no PyTorch) says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from safelaunch.base.numbers import figure
from safelaunch.trainlog.figures import median, robust_deviation

MANY, Z = 8, 3.0   # pairs that tell how much the bandwidth of healthy ones differs, and deviations of that
LEAST_DROP = 0.2   # of the bandwidth: one of two rails lost is a half, and two pairs of healthy nodes differ by less


class Pair(NamedTuple):
    """Two nodes; the first waits for the second."""

    first: str
    second: str


class PairRate(NamedTuple):
    """GB/s of a pair's all-reduce. None = none: it failed, or (`is_unmeasured`) it could not be tried."""

    pair: Pair
    gb_s: float | None
    why: str = ""
    is_unmeasured: bool = False


class BusVerdict(Enum):
    """What the pairs say of a node."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class NodeLink(NamedTuple):
    """A node's connection, its best bandwidth, and why it is called so."""

    link: BusVerdict
    gb_s: float | None
    why: str = ""
    is_suspected: bool = False   # its only pair is bad


def first_pairs(nodes: Sequence[str]) -> tuple[Pair, ...]:
    """Disjoint pairs; of an odd number the last node is left over."""
    return tuple(Pair(*pair) for pair in zip(nodes[::2], nodes[1::2], strict=False))


def bad_pairs(rates: Sequence[PairRate], level: float | None, tolerance: float) -> tuple[PairRate, ...]:
    """Those that failed, or lie below the level by more than the tolerance, and than chance where that is known."""
    known = [one.gb_s for one in rates if one.gb_s is not None]
    chance = Z * robust_deviation(known, level) if level is not None and len(known) >= MANY else 0.0
    least = (level or 0.0) - max((level or 0.0) * max(LEAST_DROP, tolerance), chance)
    return tuple(one for one in rates if not one.is_unmeasured and (one.gb_s is None or one.gb_s < least))


def level_of(rates: Sequence[PairRate]) -> float | None:
    """The bandwidth of healthy pairs: the median, of two pairs the better one; None = none was measured."""
    known = [one.gb_s for one in rates if one.gb_s is not None]
    return (median(known) if len(known) > 2 else max(known)) if known else None


def second_pairs(first: Sequence[PairRate], nodes: Sequence[str], tolerance: float) -> tuple[Pair, ...]:
    """Each node of a bad pair, and one that was left over, with a node of a good pair, as far as there are any."""
    bad = bad_pairs(first, level_of(first), tolerance)
    paired = {node for one in first for node in one.pair}
    suspects = [node for one in bad for node in one.pair] + [node for node in nodes if node not in paired]
    good = [node for one in first if one not in bad and not one.is_unmeasured for node in one.pair]
    return tuple(Pair(known, suspect) for known, suspect in zip(good, suspects, strict=False))


def judge_pairs(first: Sequence[PairRate], second: Sequence[PairRate], tolerance: float) -> dict[str, NodeLink]:
    """What is said of each node that was in a pair."""
    level, everything = level_of(first), (*first, *second)
    bad = bad_pairs(everything, level, tolerance)
    return {node: _judge_one(node, everything, bad, level)
            for node in dict.fromkeys(node for one in everything for node in one.pair)}


def _judge_one(node: str, rates: Sequence[PairRate], bad: Sequence[PairRate], level: float | None) -> NodeLink:
    own = [one for one in rates if node in one.pair and not one.is_unmeasured]
    best = max((one.gb_s for one in own if one.gb_s is not None), default=None)
    failed = [one for one in own if one in bad]
    said = "; ".join(_say(node, one, level) for one in failed)
    if len(failed) < len(own):
        return NodeLink(BusVerdict.GOOD, best, f"{said}; well with another node" if said else "")
    if len(failed) > 1:   # the second one was with a node of a good pair
        return NodeLink(BusVerdict.BAD, best, said)
    if failed:
        return NodeLink(BusVerdict.UNKNOWN, best, f"{said}; no second pair to tell which node it is", is_suspected=True)
    return NodeLink(BusVerdict.UNKNOWN, best, "bus: was not measured")


def _say(node: str, one: PairRate, level: float | None) -> str:
    other = one.pair.first if one.pair.second == node else one.pair.second
    if one.gb_s is None:
        return f"bus with {other}: {one.why}"
    return f"bus with {other}: {figure(one.gb_s)} GB/s, others {figure(level or 0)}"
