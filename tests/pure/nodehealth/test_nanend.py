"""A log whose last losses are no finite numbers is told; one skipped step, and what only looks alike, is not."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.nodehealth.slow.nanend import NanEnd, find_nan_end
from safelaunch.trainlog.steplines import Patterns
from tests.tables import each

LAST = 40


def log(line: Callable[[int], str], begin: int = 0, end: int = LAST) -> bytes:
    return "".join(f"{line(step)}\n" for step in range(begin, end)).encode()


def since(step: int, odd: str, usual: str = "0.731") -> Callable[[int], str]:
    """A value that is odd from that step on."""
    return lambda number: odd if number >= step else usual


def found(text: bytes) -> NanEnd | None:
    return find_nan_end(text, Patterns())


NANS = {
    "a loop of one's own": log(lambda n: f"step {n}/40 | loss {since(12, 'nan')(n)} | lr 1e-4"),
    "inf": log(lambda n: f"step {n}/40 | loss {since(12, 'inf')(n)} | lr 1e-4"),
    "minus inf": log(lambda n: f"step {n}/40 | loss {since(12, '-inf')(n)} | lr 1e-4"),
    "no step in the line": log(lambda n: f"loss: {since(12, 'nan')(n)}"),
    "Transformers": log(lambda n: f"{{'loss': {since(12, 'nan')(n)}, 'grad_norm': 1.1, 'epoch': {n / 40}}}"),
    "Transformers' filter of NaN": log(
        lambda n: f"{{'loss': {since(12, '0.0')(n)}, 'grad_norm': {since(12, 'nan')(n)}, 'epoch': {n / 40}}}"),
    "JSON": log(lambda n: f'{{"step": {n}, "loss": {since(12, "NaN")(n)}}}'),
    "Megatron": log(lambda n: f" iteration {n:8}/ 40 | consumed samples: 8 | lm loss: {since(12, 'nan')(n)} | "
                              "loss scale: 1.0 | grad norm: 0.9 |"),
    "every rank": log(lambda n: "\n".join(f"[n{r}:{r}]:step {n} loss={since(12, 'nan')(n)}" for r in range(4))),
    "with losses of a validation": log(lambda n: f"step {n} loss {since(12, 'nan')(n)}\nval_loss: 0.4"),
    "with a summary of the best": log(lambda n: f"step {n} loss {since(12, 'nan')(n)}") + b"best loss: 0.44\n",
    "norms alone for long": log(lambda n: f"step {n} loss 0.7 grad_norm: {since(12, 'nan')(n)}"),
    "a fall to exactly nothing": log(lambda n: f"step {n} loss {since(12, '0.0', '1.2')(n)}"),
}
HEALTHY = {
    "one skipped step": log(lambda n: f"step {n} loss {'nan' if n == 12 else 0.7}"),
    "the last step skipped": log(lambda n: f"step {n} loss {'nan' if n == LAST - 1 else 0.7}"),
    "the last step skipped, told by all ranks": log(
        lambda n: "\n".join(f"[n{r}:{r}]:step {n} loss {'nan' if n == LAST - 1 else 0.7}" for r in range(8))),
    "NaN that went away": log(lambda n: f"step {n} loss {'nan' if n < 30 else 0.7}"),
    "overflows of a scaler at the start": log(lambda n: f"step {n} loss 0.7 grad_norm: {'inf' if n < 16 else 0.9}"),
    "a short trial of a scaler": log(lambda n: f"step {n} loss 0.7 grad_norm: inf", end=16),
    "a loss that begins at nothing (GRPO)": log(lambda n: f"{{'loss': 0.0, 'grad_norm': 0.4, 'epoch': {n / 40}}}"),
    "a loss that fades": log(lambda n: f"step {n} loss {max(0.0, 1 - n / 20):.2f}"),
    "a constant": log(lambda n: f"step {n} loss 0.6931"),
    "a part of the loss": log(lambda n: f"step {n} loss 0.7 aux loss: nan"),
    "only a validation without data": log(lambda n: f"step {n} loss 0.7\nval_loss: nan"),
    "Lightning's bar of a loss that is not returned": log(lambda n: f"Epoch 0: {n}/40 loss=nan, train_loss=0.31"),
    "words": b"the loss became nan once, and the loss is nan no more\n" * 5,
    "nothing": b"",
}


@each("name", NANS)
def test_a_log_that_ends_in_no_finite_numbers_is_told_from_the_first_line_on(name: str) -> None:
    end = found(NANS[name])
    assert end is not None and not end.is_whole
    first = NANS[name][end.start:].partition(b"\n")[0]
    assert first.decode() == end.line and end.step in (12, None)
    assert end.lines == LAST - 12, end
    assert NANS[name][:end.start].count(b"\n") in (12, 24, 48), "the first of the odd lines"


@each("name", HEALTHY)
def test_a_log_that_goes_on_well_is_not(name: str) -> None:
    assert found(HEALTHY[name]) is None


@each("name", [name for name in NANS if "alone" not in name and "nothing" not in name])
def test_three_lines_of_losses_are_enough_and_two_are_not(name: str) -> None:
    lines = NANS[name].splitlines(keepends=True)
    per_step = len(lines) // LAST
    assert found(b"".join(lines[:per_step * 15])) is not None
    assert found(b"".join(lines[:per_step * 14])) is None


def test_what_is_odd_from_the_first_line_on_may_have_begun_before() -> None:
    end = found(log(lambda n: f"step {n} loss nan"))
    assert end is not None and end.is_whole and end.step == 0
