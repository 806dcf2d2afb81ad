"""What a team's figures advise: how often to save (Young), and how many spares. With what the figures do not tell.

Failures are Poisson in node-days; their rate is a Gamma after what was seen, from Jeffreys' prior (1/2 failure). So a
fleet without a failure has a rate as well, and an interval that says how little is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from safelaunch.nodehealth.nodeuse import HALF
from safelaunch.status.costs import Track
from safelaunch.trainlog.figures import median, robust_deviation

DAY_S = 86400.0
LOW, HIGH = 0.025, 0.975     # of the 95 % interval
SURE = 0.95                  # that the spares are enough
MOST_SPARES = 64
LEAST_PIECES = 5             # pieces of a track with a save, and as many without, before its cost is told
CLEAR = 2.0                  # deviations that a cost must stand out by


@dataclass(frozen=True)
class FailureRate:
    """Failures in node-days of use; `low` and `high` bound the rate per node-day at 95 %."""

    failures: int
    node_days: float
    rate: float
    low: float
    high: float

    @property
    def mtbf_days(self) -> float:
        return 1 / self.rate


def failure_rate(failures: int, node_days: float) -> FailureRate | None:
    """The rate with its interval; None without any use."""
    if not (math.isfinite(node_days) and node_days > 0):
        return None
    shape = failures + HALF
    low, high = (quantile(failures, share) / node_days for share in (LOW, HIGH))
    return FailureRate(failures, node_days, shape / node_days, low, high)


def quantile(failures: int, share: float) -> float:
    """The value below which a Gamma of shape failures + ½ and scale 1 lies with this probability, by bisection."""
    low, high = 0.0, failures + 10 * math.sqrt(failures + HALF) + 20
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - above(failures, middle) < share else (low, middle)
    return (low + high) / 2


def above(failures: int, x: float) -> float:
    """P(G > x) of that Gamma for x > 0 (Abramowitz and Stegun 6.5.17, 6.5.22)."""
    return math.erfc(math.sqrt(x)) + math.fsum(
        math.exp((k + HALF) * math.log(x) - x - math.lgamma(k + 1.5)) for k in range(failures))


@dataclass(frozen=True)
class SaveAdvice:
    """How often to save: `best_s` between two checkpoints (Young 1974). `best_waste` is the share of time that saving,
    steps that are made again and restarts then take. `now_s` and `now_waste` are those of the present interval.
    """

    cost_s: float
    mtbf_s: float
    best_s: float
    best_waste: float
    now_s: float | None
    now_waste: float | None


def advise_saves(cost_s: float, mtbf_s: float, restart_s: float, now_s: float | None) -> SaveAdvice:
    """The interval √(2·cost·MTBF), which holds while a save takes far less than the MTBF; never shorter than a save."""
    best_s = max(cost_s, math.sqrt(2 * cost_s * mtbf_s))

    def waste(interval_s: float) -> float:
        return min(1.0, cost_s / interval_s + (interval_s / 2 + restart_s) / mtbf_s)

    return SaveAdvice(cost_s, mtbf_s, best_s, waste(best_s), now_s, waste(now_s) if now_s else None)


def saves_apart_s(saves: Sequence[tuple[float, int]]) -> float | None:
    """Seconds between two checkpoints, as usual; None = fewer than three."""
    apart = [later_t - t for (t, step), (later_t, later) in pairwise(saves) if later > step and later_t > t]
    return median(apart) if len(apart) >= 2 else None


def save_cost_s(tracks: Sequence[Track], saves: Sequence[tuple[float, int]]) -> float | None:
    """Seconds that a save takes from the steps: how much longer pieces of a track with one took. The journal has a step
    a minute. None = it does not stand out, or too little is known.
    """
    plain: list[float] = []
    with_save: list[tuple[float, int]] = []
    for track in tracks:
        for (t, step), (later_t, later) in pairwise(track.points):
            if later <= step or later_t <= t:
                continue
            inside = sum(step < at <= later for _, at in saves)
            if inside == 0:
                plain.append((later_t - t) / (later - step))
            elif inside == 1:
                with_save.append((later_t - t, later - step))
    if min(len(plain), len(with_save)) < LEAST_PIECES:
        return None
    pace_s = median(plain)
    costs = [seconds - steps * pace_s for seconds, steps in with_save]
    cost_s = median(costs)
    noise_s = robust_deviation(plain, pace_s) * median([steps for _, steps in with_save])
    return cost_s if cost_s > max(CLEAR * noise_s, 0.5) else None


def spares_for(rate: FailureRate, nodes: int, job_s: float) -> int | None:
    """Spares that are enough for a job with this probability: of nodes that fail within it. The rate is uncertain, so
    the number is negative binomial. None = more than MOST_SPARES.
    """
    use_days = nodes * job_s / DAY_S
    shape, chance = rate.failures + HALF, use_days / (rate.node_days + use_days)
    term = total = (1 - chance) ** shape
    for count in range(MOST_SPARES + 1):
        if total >= SURE:
            return count
        term *= (shape + count) / (count + 1) * chance
        total += term
    return None
