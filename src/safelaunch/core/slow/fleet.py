"""Which node of many is slow, by rates that all of them measured: a robust z-score and a least effect, seen again.

All nodes are measured once, the slowest few again. A node is slow where the median of its own rates lies below that of
the others by the tolerance at least, and by more than chance. Chance is the spread between the nodes (1.4826 × the
median absolute deviation; Iglewicz and Hoaglin 1993). A few nodes do not show it: there it is what a node's own rates
vary by. `python -m benchmarks.slow fleet` measures how often that is right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from safelaunch.core.progress.figures import median, robust_deviation

TOLERANCE = 0.015      # least effect; the chronicle's slow node was slower by 2.5 %
LEAST_NODES = 3        # of two nobody can say which is slow
LARGE = 16             # nodes whose spread is known: below it the MAD of healthy nodes is often wrong by half
Z, OWN_Z = 3.0, 4.0    # by the spread between nodes; by a node's own repeats
ROUNDS, SMALL_ROUNDS = 3, 5
AGAIN, SHARE_AGAIN = 4, 50   # the slowest four, or one of fifty, are measured again
FLOOR = 0.001          # least noise: no clock and no node repeats better
_MEDIANS = 1.2533      # how much more a median varies than a mean, of a normal distribution

Rates = Mapping[str, float]   # node → rate, more is better


class NodeScore(NamedTuple):
    """A node against the others: its own rate and theirs, by what share it is slower, and that in deviations."""

    node: str
    rate: float
    level: float
    deficit: float
    z: float
    is_slow: bool


def rounds_of(nodes: int) -> int:
    """How often the slowest of so many nodes are measured."""
    return ROUNDS if nodes >= LARGE else SMALL_ROUNDS


def slowest(first: Rates, tolerance: float) -> tuple[str, ...]:
    """The nodes to be measured again, after all were measured once; () where none can be slow."""
    if len(first) < LEAST_NODES:
        return ()
    level = median(list(first.values()))
    order = sorted(first, key=first.__getitem__)
    few = max(AGAIN, len(order) // SHARE_AGAIN)
    # Beyond the few: whoever seems to be slow, up to a half of all.
    again = order[:few] + [node for node in order[few:len(order) // 2] if first[node] <= level * (1 - tolerance)]
    if len(first) >= LARGE and first[order[0]] > level * (1 - tolerance / 2):
        return ()
    return tuple(again)


def judge_fleet(rounds: Sequence[Rates], tolerance: float = TOLERANCE) -> tuple[NodeScore, ...]:
    """All nodes of the first round, the slowest first; () of fewer than three. Rates are positive."""
    if not rounds or len(rounds[0]) < LEAST_NODES:
        return ()
    seen = {node: [one[node] for one in rounds if node in one] for node in rounds[0]}
    own = {node: math.log(median(rates)) for node, rates in seen.items()}
    order = sorted(own, key=own.__getitem__)
    logs = [own[node] for node in order]
    firsts = [math.log(rate) for rate in rounds[0].values()]
    between = max(FLOOR, robust_deviation(firsts, median(firsts)))
    within = max(FLOOR, _deviation([[math.log(rate) for rate in rates] for rates in seen.values()]))
    found = []
    for index, node in enumerate(order):
        level = _median_without(logs, index)
        times = len(seen[node])
        noise = between if len(order) >= LARGE else within * _MEDIANS / math.sqrt(times)
        deficit = 1 - math.exp(own[node] - level)
        z = (level - own[node]) / noise
        sure = Z if len(order) >= LARGE else OWN_Z
        found.append(NodeScore(node, math.exp(own[node]), math.exp(level), deficit, z,
                               times > 1 and deficit >= tolerance and z >= sure))
    return tuple(found)


def _deviation(groups: Sequence[Sequence[float]]) -> float:
    """The deviation within the groups, pooled; 0 where none has two values."""
    squares, freedom = 0.0, 0
    for values in groups:
        mean = math.fsum(values) / len(values)
        squares += math.fsum((value - mean) ** 2 for value in values)
        freedom += len(values) - 1
    return math.sqrt(squares / freedom) if freedom else 0.0


def _median_without(ordered: Sequence[float], index: int) -> float:
    """The median of all but one."""
    left = len(ordered) - 1
    low, high = (left - 1) // 2, left // 2
    return (ordered[low + (low >= index)] + ordered[high + (high >= index)]) / 2
