"""Nodes that fail more often than the fleet: a Gamma–Poisson posterior of each node's rate of failures.

A node's failures are Poisson in its days of use. Rates differ between nodes as a Gamma, fitted to the fleet by moments.
The mean is that of the *other* nodes: in a fleet of four, a bad node would otherwise hide behind its own failures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

TIMES, SURE = 10.0, 0.95      # a node is bad where P(rate > TIMES × prior mean) > SURE
# Of the prior's shape. 0.1: three failures of a new node prove nothing. 0.3: a fleet that has failed evenly so far may
# still get a bad node. It assumes 0.6 % of nodes above TIMES the mean; 0.1 assumes 2.4 %.
LEAST_SHAPE, MOST_SHAPE = 0.1, 0.3
HALF = 0.5                    # failures added to the others' (Jeffreys): a fleet without any still has a rate
_LEAST_DAYS = 1e-9            # of the others: a difference of sums can be 0
_STEPS, _ENOUGH, _TINY = 10_000, 1e-15, 1e-300


class NodeDays(NamedTuple):
    """How often a node has failed in how many days of use."""

    node: str
    failures: int
    days: float


class NodeRate(NamedTuple):
    """A node's rate of failures, per day. `prior` is the mean of the others, `expected` the failures at that rate."""

    node: str
    failures: int
    days: float
    expected: float
    prior: float
    posterior: float        # mean
    probability: float      # that the rate is above TIMES × prior

    @property
    def is_bad(self) -> bool:
        """Whether to exclude it."""
        return self.probability > SURE


def judge_rates(fleet: Sequence[NodeDays]) -> list[NodeRate]:
    """All nodes with days of use, the worst first; [] of fewer than two: nothing to compare with."""
    used = [one for one in fleet if one.days > 0]
    if len(used) < 2:
        return []
    shape = fit_shape(used)
    failures, days = sum(one.failures for one in used), math.fsum(one.days for one in used)
    alike: dict[tuple[int, float], NodeRate] = {}   # most nodes have failed and were used alike: 20 µs for each kind
    for one in used:
        if one[1:] not in alike:
            alike[one[1:]] = _judge(one, shape, (failures - one.failures + HALF) / max(_LEAST_DAYS, days - one.days))
    rates = [alike[one[1:]]._replace(node=one.node) for one in used]
    return sorted(rates, key=lambda rate: (-rate.probability, -rate.posterior, rate.node))


def fit_shape(fleet: Sequence[NodeDays]) -> float:
    """Shape of the Gamma by moments: failures vary by mt + (mt)² / shape, with rate m and days t."""
    mean = sum(one.failures for one in fleet) / math.fsum(one.days for one in fleet)
    excess = math.fsum((one.failures - mean * one.days) ** 2 - mean * one.days for one in fleet)
    if excess <= 0:
        return MOST_SHAPE
    shape = mean * mean * math.fsum(one.days * one.days for one in fleet) / excess
    return min(MOST_SHAPE, max(LEAST_SHAPE, shape))


def _judge(one: NodeDays, shape: float, prior: float) -> NodeRate:
    known_days = shape / prior    # what the prior weighs, in days of use
    posterior = (shape + one.failures) / (known_days + one.days)
    above = upper_gamma(shape + one.failures, TIMES * prior * (known_days + one.days))
    return NodeRate(one.node, one.failures, one.days, prior * one.days, prior, posterior, above)


def upper_gamma(shape: float, x: float) -> float:
    """P(G > x) of a Gamma of that shape and scale 1, 0..1; raises ValueError unless shape > 0 and x ≥ 0.

    A series below shape + 1, a continued fraction above (Abramowitz and Stegun 6.5.29, 6.5.31).
    """
    if not (shape > 0 and x >= 0):
        raise ValueError(f"upper_gamma of shape {shape}, x {x}")
    if x == 0:
        return 1.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        return min(1.0, max(0.0, 1 - front * _series(shape, x)))
    return min(1.0, max(0.0, front * _fraction(shape, x)))


def _series(shape: float, x: float) -> float:
    term = total = 1 / shape
    for n in range(1, _STEPS):
        term *= x / (shape + n)
        total += term
        if term < total * _ENOUGH:
            break
    return total


def _fraction(shape: float, x: float) -> float:
    """By Lentz's method, from the front."""
    b = x + 1 - shape
    c, d = 1 / _TINY, 1 / b
    value = d
    for n in range(1, _STEPS):
        a = -n * (n - shape)
        b += 2
        d = 1 / ((a * d + b) or _TINY)
        c = (b + a / c) or _TINY
        value *= c * d
        if abs(c * d - 1) < _ENOUGH:
            break
    return value
