"""Losses that are no numbers, losses that leap, gradients that explode: a warning, once each; it blames nobody.

One odd value counts as none. Trainers in mixed precision print a single NaN or overflow, skip that step and go on, and
a loss may leap for a step. So LASTING step lines in a row must agree. What is usual is the median of the values before.
A leap is measured in their median absolute deviation, which outliers do not move (Hampel 1974).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from safelaunch.base.numbers import figure
from safelaunch.trainlog.figures import median, robust_deviation
from safelaunch.trainlog.steplines import StepLine

NAN, LOSS, GRAD_NORM = "nan", "loss_spike", "grad_norm"
LASTING = 3
LEARN, WINDOW = 32, 128   # values before a leap is judged, and how many are known
DEVIATIONS = 10.0         # of a leap, in standard deviations as the median absolute deviation tells them
LEAST_LEAP = 0.2          # of the loss's usual value: less is no matter however quiet the curve was
EXPLODED = 10.0           # times the usual norm of the gradients; healthy ones have long tails


class OddFigure(NamedTuple):
    """What three step lines in a row show, from `step` on; `usual` None = nothing to compare with.

    `before`: the last step before a loss that is no finite number, None = the attempt had none.
    """

    kind: str
    step: int
    value: float
    usual: float | None
    text: str
    before: int | None = None


class FigureHistory(NamedTuple):
    """One figure: its usual values, and those that are odd now, the first of them with its step and line."""

    usual: tuple[float, ...] = ()
    odd: tuple[tuple[int, float, str], ...] = ()


class FigureWatch(NamedTuple):
    """What the figures of a run's attempts have been. `nans`: lines in a row whose loss is no finite number. `finite`:
    the newest step of this attempt whose loss is one.
    """

    attempt: int = 0
    step: int | None = None
    nans: tuple[tuple[int, float, str], ...] = ()
    finite: int | None = None
    loss: FigureHistory = FigureHistory()
    grad_norm: FigureHistory = FigureHistory()


def tell_odd(kind: str, value: str | float, usual: float | None) -> str:
    """What an odd figure says."""
    value = figure(float(value), 4)
    if kind == NAN:
        return f"the loss is {value} in {LASTING} step lines in a row"
    what = {LOSS: "the loss", GRAD_NORM: "the norm of the gradients"}.get(kind, kind)
    before = f" from {figure(float(usual), 4)}" if usual is not None else ""
    return f"{what} has leapt{before} to {value}"


def watch_figures(watch: FigureWatch, attempt: int, lines: Sequence[StepLine]) -> tuple[FigureWatch, list[OddFigure]]:
    """After new step lines of this attempt, and what they show. Steps that ranks repeat count once."""
    if attempt != watch.attempt:
        watch = watch._replace(attempt=attempt, step=None, nans=(), finite=None)
    found: list[OddFigure] = []
    for line in lines:
        if watch.step is not None and watch.step / 2 <= line.step <= watch.step:
            continue
        watch = watch._replace(step=line.step)
        if line.loss is not None:
            watch = _follow_loss(watch, line, line.loss, found)
        if line.grad_norm is not None and math.isfinite(line.grad_norm):
            curve, odd = _follow(watch.grad_norm, line, line.grad_norm, GRAD_NORM)
            watch = watch._replace(grad_norm=curve)
            found += odd
    return watch, found


def _follow_loss(watch: FigureWatch, line: StepLine, loss: float, found: list[OddFigure]) -> FigureWatch:
    if not math.isfinite(loss):
        nans = (*watch.nans, (line.step, loss, line.text))[:LASTING + 1]
        if len(nans) == LASTING:
            step, value, text = nans[0]
            found.append(OddFigure(NAN, step, value, None, text, watch.finite))
        return watch._replace(nans=nans)
    curve, odd = _follow(watch.loss, line, loss, LOSS)
    found += odd
    return watch._replace(nans=(), finite=line.step, loss=curve)


def _follow(curve: FigureHistory, line: StepLine, value: float, kind: str) -> tuple[FigureHistory, list[OddFigure]]:
    """A leap that lasts for LEARN values is what is usual from then on."""
    if len(curve.usual) < LEARN:
        return curve._replace(usual=(*curve.usual, value)), []
    usual = median(curve.usual)
    if value <= usual + _most(curve.usual, usual, kind):
        return FigureHistory((*curve.usual, value)[-WINDOW:]), []
    odd = (*curve.odd, (line.step, value, line.text))
    if len(odd) >= LEARN:
        return FigureHistory(tuple(one for _, one, _ in odd)), []
    step, first, text = odd[0]
    told = [OddFigure(kind, step, first, usual, text)] if len(odd) == LASTING else []
    return curve._replace(odd=odd), told


def _most(values: Sequence[float], usual: float, kind: str) -> float:
    """How far above the usual a value is no leap yet."""
    spread = DEVIATIONS * robust_deviation(values, usual)
    least = (EXPLODED - 1 if kind == GRAD_NORM else LEAST_LEAP) * abs(usual)
    return max(spread, least)
