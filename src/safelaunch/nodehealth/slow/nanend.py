"""A log that ends in losses or gradients that are no finite numbers: its training went on and learnt nothing.

A loss counts from LASTING lines of one rank in a row on, up to the log's end: mixed precision prints one NaN, skips
that step and goes on. Norms of gradients alone need LASTING_NORMS: a new loss scale of 65536 is halved at up to 16
steps. Two readings stand for a NaN. Transformers writes 0.0 for it beside a norm of nan (logging_nan_inf_filter). So
does a loss that falls from its usual value to exactly 0.0 at once, and stays. A loss that begins at 0.0 is GRPO's, one
that fades is rounded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from safelaunch.nodehealth.slow.oddfigures import LASTING
from safelaunch.trainlog.figures import median, named_grad_norms, named_losses
from safelaunch.trainlog.steplines import Patterns
from safelaunch.trainlog.steps import latest_step

LASTING_NORMS, LASTING_ZEROS = 20, 10
LEAP, USUAL = 0.05, 10   # the least loss before a fall to 0.0, and the losses that tell what was usual
LOSS, NORM, ZERO = "loss", "norm", "zero"
_SPEAKER = re.compile(rb"\[[^\]\s]{1,64}:\d{1,6}\]:")
_SUMMARY = re.compile(rb"(?i)\b(?:best|final|lowest|min|mean|average|avg|total)[ _]")


class NanEnd(NamedTuple):
    """From which line on the figures are odd, up to the end. `is_whole`: the text shows no good one before it."""

    kind: str           # LOSS | NORM | ZERO
    value: str
    step: int | None    # that the line names
    line: str
    start: int          # where it begins in the text
    lines: int          # lines of one rank in a row
    is_whole: bool

    def tell(self, began: int | None = None) -> str:
        """What people are told: "the loss is nan from step 12 on, in the last 28 step lines". `began`: the step where
        the whole log says that it began.
        """
        what = {LOSS: f"the loss is {self.value}", NORM: f"the norm of the gradients is {self.value}",
                ZERO: "the loss is exactly 0.0, as some trainers write it for NaN,"}[self.kind]
        step = self.step if began is None else began
        return f"{what}{'' if step is None else f' from step {step} on'}, in the last {self.lines} lines that name one"


class _FigureLine(NamedTuple):
    begin: int
    text: bytes
    loss: float | None
    norm: float | None

    @property
    def is_nan(self) -> bool:
        return self.loss is not None and (not math.isfinite(self.loss) or (self.loss == 0.0 and self.has_bad_norm))

    @property
    def has_bad_norm(self) -> bool:
        return self.norm is not None and not math.isfinite(self.norm)

    @property
    def is_zero(self) -> bool:
        return self.loss == 0.0 and not self.norm


def find_nan_end(text: bytes, patterns: Patterns) -> NanEnd | None:
    """How a log ends whose last figures are no finite numbers; None = it does not. `text`: its end."""
    lines = _figure_lines(text, patterns.loss)
    losses = [line for line in lines if line.loss is not None]
    norms = [line for line in lines if line.norm is not None]
    for kind, known, odd, least in (
            (LOSS, losses, [line.is_nan for line in losses], LASTING),
            (NORM, norms, [line.has_bad_norm for line in norms], LASTING_NORMS),
            (ZERO, losses, [line.is_zero for line in losses], LASTING_ZEROS)):
        begin = next((at + 1 for at in range(len(odd) - 1, -1, -1) if not odd[at]), 0)
        count = max(Counter(_speaker(line) for line in known[begin:]).values(), default=0)
        if count < least or (kind == ZERO and not _falls_at(known, begin)):
            continue
        first = known[begin]
        value = first.loss if kind != NORM and (first.loss or first.norm is None) else first.norm
        return NanEnd(kind, str(value), latest_step(first.text, patterns.step), first.text.decode(errors="replace"),
                      first.begin, count, begin == 0)
    return None


def _falls_at(known: Sequence[_FigureLine], begin: int) -> bool:
    """Whether the loss before that line is as large as usual."""
    before = [line.loss or 0.0 for line in known[max(0, begin - USUAL):begin]]
    return bool(before) and before[-1] >= max(LEAP, median(before) / 2)


def _figure_lines(text: bytes, loss: str) -> Sequence[_FigureLine]:
    """The lines that name a loss or a norm, in order, each with the last one that it names."""
    found: dict[int, dict[str, float]] = {}
    named = (*((at, LOSS, value) for at, value in named_losses(text, loss)),
             *((at, NORM, value) for at, value in named_grad_norms(text)))
    for at, kind, value in named:
        begin = max(text.rfind(b"\n", 0, at), text.rfind(b"\r", 0, at)) + 1
        if kind == NORM or not _SUMMARY.search(text, begin, at):
            found.setdefault(begin, {})[kind] = value
    return [_FigureLine(begin, _line(text, begin), figures.get(LOSS), figures.get(NORM))
            for begin, figures in sorted(found.items())]


def _line(text: bytes, begin: int) -> bytes:
    ends = [end for end in (text.find(b"\n", begin), text.find(b"\r", begin)) if end >= 0]
    return text[begin:min(ends, default=len(text))]


def _speaker(line: _FigureLine) -> bytes:
    found = _SPEAKER.match(line.text)
    return found[0] if found else b""
