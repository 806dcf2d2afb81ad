"""The figures of a training's log as curves: thinned for a drawing, with their spikes and changes of pace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from safelaunch.nodehealth.slow.changepoint import PaceChange, PaceWatch, StepTime, follow, restart
from safelaunch.trainlog.figures import median, robust_deviation

MOST_DRAWN = 700        # points of a curve: a drawing is some 900 pixels wide
MOST_FOLLOWED = 3000    # values that the search for changes sees; more are folded to medians, 30 μs each
BLOCK = 64              # values that tell what is usual for the next ones
WIDE = 10.0             # deviations above the usual: e^-50 in a normal distribution, so it is none of its tail
LEAST = 0.1             # ... and a tenth above it at least: logs print few digits
MOST_SPIKES = 20


@dataclass(frozen=True)
class Curve:
    """Values of one attempt by step, in the order of the log."""

    attempt: int
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Spike:
    """A value far above those before it, or one that is no number (`usual` None)."""

    attempt: int
    step: int
    value: float
    usual: float | None


def thin(points: Sequence[tuple[int, float]], most: int = MOST_DRAWN) -> list[tuple[int, float]]:
    """At most `most` points that look the same: the least and the greatest of each piece. No-numbers are left out."""
    finite = [point for point in points if math.isfinite(point[1])]
    if len(finite) <= most:
        return finite
    found: list[tuple[int, float]] = []
    for piece in _pieces(finite, max(1, most // 2)):
        low, high = (choose(range(len(piece)), key=lambda at: piece[at][1]) for choose in (min, max))
        found += [piece[at] for at in sorted({low, high})]
    return found


def spikes(curves: Sequence[Curve]) -> list[Spike]:
    """Values far above the ones before them, the highest first."""
    found = [spike for curve in curves for spike in _spikes_of(curve)]
    found.sort(key=lambda one: (one.usual is not None, -(one.value / one.usual) if one.usual else 0.0))
    return found[:MOST_SPIKES]


def _spikes_of(curve: Curve) -> Iterator[Spike]:
    usual: float | None = None
    bound = math.inf
    for start in range(0, len(curve.points), BLOCK):
        piece = curve.points[start:start + BLOCK]
        finite = [value for _, value in piece if math.isfinite(value)]
        if usual is None and finite:   # the first values are their own measure: a start is steep
            usual, bound = _bound(finite)
        for step, value in piece:
            if not math.isfinite(value):
                yield Spike(curve.attempt, step, value, None)
            elif value > bound:
                yield Spike(curve.attempt, step, value, usual)
        if len(finite) >= BLOCK // 2:
            usual, bound = _bound(finite)


def _bound(values: Sequence[float]) -> tuple[float, float]:
    """What is usual, and above what a value is a spike."""
    usual = median(values)
    return usual, usual + max(WIDE * robust_deviation(values, usual), LEAST * abs(usual))


def changes(curves: Sequence[Curve], tolerance: float) -> list[PaceChange]:
    """Where steps began to take longer for good, or no longer did (nodehealth.slow.changepoint)."""
    watch, found = PaceWatch(tolerance), []
    most = max(1, MOST_FOLLOWED // max(1, len(curves)))
    for curve in curves:
        watch = restart(watch)
        points = [point for point in curve.points if math.isfinite(point[1]) and point[1] > 0]
        for piece in _pieces(points, most):
            watch, change = follow(watch, StepTime(piece[0][0], median([value for _, value in piece])))
            found += [change] if change else []
    return found


def _pieces(points: Sequence[tuple[int, float]], most: int) -> Iterator[Sequence[tuple[int, float]]]:
    """The points in at most `most` pieces of one length."""
    size = max(1, math.ceil(len(points) / most))
    return (points[at:at + size] for at in range(0, len(points), size))
