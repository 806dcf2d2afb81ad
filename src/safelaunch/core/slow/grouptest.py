"""Group testing by restarts: which nodes the next job leaves out, until it is known which one slows all others down.

For whoever can do nothing but start jobs and read their step times. At most one node is taken to be slow; that none is
has a prior of its own. Each job tells whether the slow one is among those that it has left out, with noise: so there is
a probability for each node (Bayes). The next group is the one that tells most: its probability is as near to a half as
the spares allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SURE = 0.99          # probability from which a node is named
NOBODY = 0.05        # prior: steps are longer for another reason
LEAST_NOISE = 0.001
_RULED_OUT = 0.001   # probability, of a node that counts as cleared


@dataclass(frozen=True)
class Trial:
    """A job without these nodes: seconds of its steps."""

    left_out: tuple[str, ...]
    step_s: float


@dataclass(frozen=True)
class GroupSearch:
    """`nodes`: those of the slow job, the most suspected first. `noise`: the deviation of one job's step time, a share.
    `normal_s`, `slow_s`: seconds of a step before, and with all nodes.
    """

    nodes: tuple[str, ...]
    spares: int
    normal_s: float
    slow_s: float
    noise: float
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class GroupPlan:
    """`culprit` or `is_nobody` ends the search; else leave out `leave_out`. `left`: nodes that may be it; `most_left`:
    restarts that are still needed at most, if no result is doubtful.
    """

    leave_out: tuple[str, ...]
    culprit: str | None
    is_nobody: bool
    probability: float
    left: int
    most_left: int


def plan_next(search: GroupSearch) -> GroupPlan:
    """What to do after these results."""
    known, nobody = probabilities(search)
    order = sorted(search.nodes, key=lambda node: -known[node])   # stable: the most suspected first
    best = known[order[0]]
    left = sum(value > _RULED_OUT for value in known.values())
    if best >= SURE:
        return GroupPlan((), order[0], False, best, 1, 0)
    if nobody >= SURE:
        return GroupPlan((), None, True, nobody, left, 0)
    group = _best_group(order, known, search.spares)
    return GroupPlan(group, None, False, best, left, most_restarts(max(1, left), search.spares))


def probabilities(search: GroupSearch) -> tuple[dict[str, float], float]:
    """node → probability that it is the slow one, and that none is."""
    noise = max(LEAST_NOISE, search.noise)
    logs = {node: math.log((1 - NOBODY) / len(search.nodes)) for node in search.nodes}
    nobody = math.log(NOBODY)
    for trial in search.trials:
        back = _log_likelihood(trial.step_s, search.normal_s, noise)
        slow = _log_likelihood(trial.step_s, search.slow_s, noise)
        for node in logs:
            logs[node] += back if node in trial.left_out else slow
        nobody += slow
    top = max(nobody, *logs.values())
    weights = {node: math.exp(value - top) for node, value in logs.items()}
    total = math.fsum([*weights.values(), math.exp(nobody - top)])
    return {node: weight / total for node, weight in weights.items()}, math.exp(nobody - top) / total


def most_restarts(nodes: int, spares: int) -> int:
    """How many restarts find one of so many nodes at most, if no result is doubtful. Groups of all spares come one
    after the other, until a half of what is left fits; then halves.
    """
    groups = max(0, math.ceil((nodes - 2 * spares) / spares))
    return groups + math.ceil(math.log2(max(1, nodes - groups * spares)))


def _best_group(order: Sequence[str], known: dict[str, float], spares: int) -> tuple[str, ...]:
    """Of the likeliest nodes as many as come nearest to a half of all that may be."""
    most = max(1, min(spares, len(order) - 1))
    shares, total = [], 0.0
    for node in order[:most]:
        total += known[node]
        shares.append(abs(total - 0.5))
    return tuple(order[: shares.index(min(shares)) + 1])


def _log_likelihood(seen_s: float, level_s: float, noise: float) -> float:
    apart = math.log(seen_s / level_s) / noise
    return -0.5 * min(apart * apart, 50.0)   # one job that was disturbed must not settle it
