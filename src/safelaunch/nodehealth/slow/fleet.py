"""Which node of many is slow, by rates that all of them measured: a robust z-score and a least effect, seen again.

All nodes are measured once. Of many nodes the slowest few are measured again, of a few all of them, and more often. A
node is slow where its own rates lie below the median of the others by the tolerance at least, and by more than chance.
Chance among many is the spread between the nodes (1.4826 × the median absolute deviation; Iglewicz and Hoaglin 1993). A
few nodes do not show that. So healthy ones are assumed to differ by a third of the tolerance (from 16 nodes on by more,
where they show it). The noise of a measurement is what the rates of each node vary by; what changes for all nodes alike
is none. `python -m benchmarks.slow fleet` measures how often that is right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from safelaunch.trainlog.figures import median, robust_deviation

TOLERANCE = 0.015      # least effect; one real training's slow node was slower by 2.5 %
LEAST_NODES = 3        # of two nobody can say which is slow
LARGE = 48             # nodes whose spread is known: its estimate of 16 missed 4 % of the slow nodes (benchmarks.slow)
Z, FEW_Z = 3.0, 3.2
ROUNDS, FEW_ROUNDS = 4, 10
SHOWN = 16             # nodes that show their spread roughly; the MAD of 4 hid half of the slow nodes (benchmarks.slow)
LOOK = 3               # rounds of a few nodes after which it is looked whether one may be slow
CLEAR_Z = 2 * FEW_Z    # ... and of which no further round would tell anything else
SPREAD_SHARE = 1 / 3   # of the tolerance: how much healthy nodes differ, at least
AGAIN, SHARE_AGAIN = 4, 50   # of many the slowest four, or one of fifty, are measured again
DRAWN_IN = 0.813       # deviation of ten normal values whose least and greatest are drawn in to the next ones (drawn)
FLOOR = 0.001          # least noise: no clock and no node repeats better

Rates = Mapping[str, float]   # node → rate, more is better


class NodeScore(NamedTuple):
    """A node against the others: its own rate and theirs, by what share it is slower, and that in deviations."""

    node: str
    rate: float
    level: float
    deficit: float
    z: float
    is_slow: bool


def measured_again(rounds: Sequence[Rates], tolerance: float) -> tuple[str, ...]:
    """The nodes to be measured in one more round; () where it is known who is slow, or none can be."""
    first, is_large = rounds[0], len(rounds[0]) >= LARGE
    if len(first) < LEAST_NODES or len(rounds) >= (ROUNDS if is_large else FEW_ROUNDS):
        return ()
    if is_large:
        return _slowest(first, tolerance)
    is_open = len(rounds) < LOOK or any(score.deficit >= tolerance / 2 and not (score.is_slow and score.z >= CLEAR_Z)
                                        for score in judge_fleet(rounds, tolerance))
    return tuple(first) if is_open else ()


def _slowest(first: Rates, tolerance: float) -> tuple[str, ...]:
    level = median(list(first.values()))
    order = sorted(first, key=first.__getitem__)
    if first[order[0]] > level * (1 - tolerance / 2):
        return ()
    few = max(AGAIN, len(order) // SHARE_AGAIN)
    # Beyond the few: whoever seems to be slow, up to a half of all.
    return (*order[:few], *(node for node in order[few:len(order) // 2] if first[node] <= level * (1 - tolerance)))


def judge_fleet(rounds: Sequence[Rates], tolerance: float = TOLERANCE) -> tuple[NodeScore, ...]:
    """All nodes of the first round, the slowest first; () of fewer than three. Rates are positive."""
    if not rounds or len(rounds[0]) < LEAST_NODES:
        return ()
    is_large = len(rounds[0]) >= LARGE
    seen = {node: _logs_of(rounds, node) for node in rounds[0]} if is_large else _levelled(rounds)
    own = {node: _middle(rates) for node, rates in seen.items()}
    order = sorted(own, key=own.__getitem__)
    logs = [own[node] for node in order]
    firsts = [math.log(rate) for rate in rounds[0].values()] if is_large else logs
    between = robust_deviation(firsts, median(firsts)) if len(own) >= SHOWN else 0.0
    within = 0.0 if is_large else max(FLOOR, _noise(list(seen.values()), len(rounds) - 1))
    found = []
    for index, node in enumerate(order):
        level, times = _median_without(logs, index), len(seen[node])
        noise = max(FLOOR, between) if is_large else _noise_of_few(
            max(between, tolerance * SPREAD_SHARE), within, times, len(order) - 1)
        deficit = 1 - math.exp(own[node] - level)
        z = (level - own[node]) / noise
        found.append(NodeScore(node, math.exp(own[node]), math.exp(level), deficit, z,
                               times > 1 and deficit >= tolerance and z >= (Z if is_large else FEW_Z)))
    return tuple(found)


def _noise_of_few(spread: float, within: float, times: int, others: int) -> float:
    """The deviation of a healthy node's own rate from the median of the others, whose variance is about π/2 of n + π/2
    - 1 (drawn for 2 to 14). A mean without the ends varies a little more than a mean.
    """
    own = spread ** 2 + within ** 2 * (times + 1) / times ** 2
    return math.sqrt(own * (1 + math.pi / 2 / (others + math.pi / 2 - 1)))


def _levelled(rounds: Sequence[Rates]) -> dict[str, list[float]]:
    """The logarithms of each node's rates, without what a round changed for all nodes alike: GPUs that warm up, or a
    machine that they share. Only for few nodes, which are in all rounds: of the slowest ones alone it would hide that
    chance had made them slow.
    """
    seen = {node: _logs_of(rounds, node) for node in rounds[0]}
    usual = {node: median(logs) for node, logs in seen.items()}
    shifts = [median([math.log(one[node]) - usual[node] for node in one if node in usual] or [0.0]) for one in rounds]
    return {node: [math.log(one[node]) - shift for one, shift in zip(rounds, shifts, strict=True) if node in one]
            for node in seen}


def _logs_of(rounds: Sequence[Rates], node: str) -> list[float]:
    return [math.log(one[node]) for one in rounds if node in one]


def _middle(values: Sequence[float]) -> float:
    """The mean without the least and the greatest, so that one bad measurement does not count; the median of three."""
    kept = sorted(values)[1:-1] if len(values) > 2 else values
    return math.fsum(kept) / len(kept)


def _noise(groups: Sequence[Sequence[float]], known: int) -> float:
    """The deviation of one measurement. Of all rounds each node's least and greatest rate count as its next ones: one
    bad measurement would hide a slow node (measured: tests/drills/test_nodebench.py, a node 4 % slower in one round).
    """
    if any(len(group) < FEW_ROUNDS for group in groups):
        return _deviation(groups, known)
    drawn_in = [[kept[1], *kept[1:-1], kept[-2]] for kept in map(sorted, groups)]
    return _deviation(drawn_in, known) / DRAWN_IN


def _deviation(groups: Sequence[Sequence[float]], known: int) -> float:
    """The deviation within the groups, pooled; 0 where none has two values. `known`: levels that were taken from them.
    """
    squares, freedom = 0.0, -known
    for values in groups:
        mean = math.fsum(values) / len(values)
        squares += math.fsum((value - mean) ** 2 for value in values)
        freedom += len(values) - 1
    return math.sqrt(squares / freedom) if freedom > 0 else 0.0


def _median_without(ordered: Sequence[float], index: int) -> float:
    """The median of all but one."""
    left = len(ordered) - 1
    low, high = (left - 1) // 2, left // 2
    return (ordered[low + (low >= index)] + ordered[high + (high >= index)]) / 2
