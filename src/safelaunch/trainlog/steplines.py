"""The lines of a log that name a step, each with its figures and with what the training did before it."""

from __future__ import annotations

from typing import NamedTuple

from safelaunch.trainlog.epochs import line_begin
from safelaunch.trainlog.figures import grad_norm_in, loss_in, seconds_in
from safelaunch.trainlog.lines import signs_in
from safelaunch.trainlog.steps import last_steps

MOST_LINES = 8   # of one piece of a log, the newest: enough for a look each 5 s, and all that it costs


class Patterns(NamedTuple):
    """What to read, as in train.yaml's section `progress`."""

    step: str = "auto"
    step_time: str = "auto"
    loss: str = "auto"


class StepLine(NamedTuple):
    """A line that names a step; a figure None = it does not name it.

    `phase`: what the log has named since the step line before (trainlog.lines), "" = nothing.
    """

    step: int
    seconds: float | None
    loss: float | None
    grad_norm: float | None
    phase: str
    text: str


def step_lines(text: bytes, patterns: Patterns, since: int = 0, most: int = MOST_LINES) -> tuple[list[StepLine], str]:
    """The newest step lines of a piece of a log, in order, and the phase that its end has named; `since` as of
    trainlog.lines.listen.
    """
    spans: dict[int, tuple[int, int]] = {}   # by where a line begins: its end, and the last step that it names
    for named in last_steps(text, patterns.step, most=most, is_wanted=lambda named: named.start >= since - 1):
        begin = line_begin(text, named.start)
        ends = [end for end in (text.find(b"\n", named.start + 1), text.find(b"\r", named.start + 1)) if end >= 0]
        spans[begin] = (min(ends, default=len(text)), named.step)
    found, behind = [], since
    for begin, (end, step) in spans.items():
        line = text[begin:end]
        between = text[behind:begin]
        found.append(StepLine(step, seconds_in(line, patterns.step_time), loss_in(line, patterns.loss),
                              grad_norm_in(line), _phase(between), line.decode(errors="replace")))
        behind = end
    return found, _phase(text[behind:])


def _phase(text: bytes) -> str:
    signs = signs_in(text)
    return signs[-1] if signs else ""
