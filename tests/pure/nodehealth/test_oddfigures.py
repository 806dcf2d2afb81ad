"""A loss that is no number, a leap, an explosion are told once each; healthy curves are not."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterable

from safelaunch.nodehealth.slow.oddfigures import GRAD_NORM, LASTING, LOSS, NAN, FigureWatch, OddFigure, watch_figures
from safelaunch.trainlog.figures import grad_norm_in
from safelaunch.trainlog.steplines import StepLine
from tests.tables import each

NO = math.nan
SEEDS = range(50 if os.environ.get("SAFELAUNCH_LONG") == "1" else 2)


def play(losses: Iterable[float], norms: Iterable[float] | None = None) -> list[tuple[str, int]]:
    """Kind and step of all that is told of a run with these figures, a look a step."""
    watch, told = FigureWatch(), list[OddFigure]()
    values = list(losses)
    for number, (loss, norm) in enumerate(zip(values, norms or [0.1] * len(values), strict=True)):
        watch, found = watch_figures(watch, 1, [StepLine(number, None, loss, norm, "", f"line {number}")])
        told += found
    return [(one.kind, one.step) for one in told]


def decay(step: int, rng: random.Random) -> float:
    """A language model's: from 11 down to 2, with the noise of small batches."""
    return 2.0 + 9.0 * math.exp(-step / 300) + rng.gauss(0, 0.05)


HEALTHY: dict[str, Callable[[int, random.Random], float]] = {
    "a language model": decay,
    "a quiet one": lambda step, rng: 2.0 + 9.0 * math.exp(-step / 300) + rng.gauss(0, 0.001),
    "a noisy one": lambda step, rng: 1.0 + rng.gauss(0, 0.3),
    "batches of very different lengths": lambda step, rng: 2.0 * math.exp(rng.gauss(0, 0.3)),
    "a loss below zero": lambda step, rng: -3.0 + rng.gauss(0, 0.2),
    "a reward around zero": lambda step, rng: rng.gauss(0, 1.0),
    "a leap of one step now and then": lambda step, rng: decay(step, rng) + (6.0 if step % 97 == 0 else 0.0),
    "a leap of two steps": lambda step, rng: decay(step, rng) + (6.0 if step % 97 in (0, 1) else 0.0),
    "a NaN now and then": lambda step, rng: NO if step % 50 == 0 else decay(step, rng),
    "two NaNs in a row": lambda step, rng: NO if step % 50 in (0, 1) else decay(step, rng),
    "a new epoch that is easier": lambda step, rng: (3.0 - 0.3 * (step // 400)) + rng.gauss(0, 0.05),
    "a warm restart of the learning rate": lambda step, rng: 2.0 + 0.1 * (step % 500 < 40) + rng.gauss(0, 0.05),
    "a constant": lambda step, rng: 0.5,
}


@each("name", HEALTHY)
def test_nothing_is_told_of_a_healthy_training(name: str) -> None:
    for seed in SEEDS:
        rng = random.Random(seed)
        assert play(HEALTHY[name](step, rng) for step in range(2000)) == []


def test_nothing_is_told_of_healthy_gradients_and_of_an_overflow_that_a_trainer_skips() -> None:
    rng = random.Random(1)
    norms = [math.inf if step % 100 == 0 else 0.1 * math.exp(rng.gauss(0, 0.6)) for step in range(2000)]
    assert play([2.0] * 2000, norms) == []


@each("bad", [math.nan, math.inf, -math.inf])
def test_three_losses_in_a_row_that_are_no_numbers_are_told_once_with_the_first_step(bad: float) -> None:
    assert play([2.0] * 50 + [bad] * 100) == [(NAN, 50)]
    assert play([bad] * LASTING) == [(NAN, 0)]
    assert play([bad] * (LASTING - 1) + [2.0] * 5) == []


def test_a_leap_is_told_once_and_another_one_after_its_end_again() -> None:
    rng = random.Random(2)
    curve = [decay(step, rng) + (2.0 if 1000 <= step < 1020 or 1300 <= step < 1310 else 0.0) for step in range(1500)]
    assert play(curve) == [(LOSS, 1000), (LOSS, 1300)]


def test_a_loss_that_stays_on_its_new_level_is_told_once() -> None:
    rng = random.Random(3)
    assert play([(2.0 if step < 500 else 4.0) + rng.gauss(0, 0.05) for step in range(2000)]) == [(LOSS, 500)]


def test_gradients_that_explode_are_told_once() -> None:
    rng = random.Random(4)
    norms = [(0.1 if step < 500 else 20.0) * math.exp(rng.gauss(0, 0.3)) for step in range(510)]
    assert play([2.0] * len(norms), norms) == [(GRAD_NORM, 500)]


def test_a_line_that_many_ranks_print_counts_once_and_the_next_attempt_begins_lower() -> None:
    watch, found = watch_figures(FigureWatch(), 1, [StepLine(5, None, NO, None, "", "x")] * 64)
    assert not found
    watch, found = watch_figures(watch, 2, [StepLine(step, None, NO, None, "", "x") for step in (4, 5)])
    assert not found
    _, found = watch_figures(watch, 2, [StepLine(6, None, NO, None, "", "x")])
    assert [(one.kind, one.step) for one in found] == [(NAN, 4)]


@each(("line", "norm"), [
    (b" iteration 5/ 10 | lm loss: 2.5E+00 | grad norm: 0.113 |", 0.113), (b"{'loss': 1, 'grad_norm': 0.5}", 0.5),
    (b"{'grad_norm': '1.25'}", 1.25), (b"step: 1  grad_norm: 12.5", 12.5), (b"gnorm=0.4, clip=0", 0.4),
    (b"step 5 layer norm: 3", None), (b"step 5 grad norm clipping is on", None),
])
def test_the_norm_of_the_gradients_is_read_as_the_common_trainers_print_it(line: bytes, norm: float | None) -> None:
    assert grad_norm_in(line) == norm
