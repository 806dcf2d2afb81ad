"""Loss and seconds per step of each attempt, from its log: one pass, with a bounded memory whatever the log holds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from safelaunch.base.io import sharedfile
from safelaunch.base.io.cputime import TookTooLong, within
from safelaunch.report.curves import Curve, thin
from safelaunch.run.plan import Plan
from safelaunch.trainlog.figures import named_losses, named_step_times
from safelaunch.trainlog.steps import AUTO, MOST_LINE_BYTES, cut_lines, named_steps

BLOCK_BYTES = 1 << 20
MOST_LOG_BYTES = 1 << 30    # of all logs; a run that writes more is drawn up to there, and the report says so
MOST_KEPT = 200_000         # points of a curve in memory; more are thinned to half
OWN_PATTERNS_S = 2.0        # of processor time for a block: a user's regex can take for ever
Points = list[tuple[int, float]]
Patterns = tuple[str, str, str]
# In small letters: a line without one of these names neither a step nor a figure (trainlog). Looking for them
# first makes a log of a million lines four times as fast.
_WORDS = (b"step", b"iter", b"loss", b"num_updates", b"%", b"epoch")


class LogFigures:
    """What the logs of a run name; `notes` say what was not read."""

    def __init__(self, plan: Plan) -> None:
        self.losses: list[Curve] = []
        self.step_times: list[Curve] = []
        self.notes: list[str] = []
        self._patterns: Patterns = (plan.step_pattern, plan.loss_pattern, plan.step_time_pattern)
        self._left_bytes = MOST_LOG_BYTES

    def read(self, attempt: int, log: Path) -> None:
        """Take in the log of one attempt."""
        losses: Points = []
        times: Points = []
        try:
            for text in self._blocks(log, attempt):
                self._take(text, losses, times)
        except OSError as error:
            self.notes.append(f"the log of attempt {attempt} cannot be read: {error.strerror or error}")
        self.losses += [Curve(attempt, tuple(losses))] if losses else []
        self.step_times += [Curve(attempt, tuple(times))] if times else []

    def _blocks(self, log: Path, attempt: int) -> Iterator[bytes]:
        """The log in pieces of whole lines; of a line that is longer than a block, its end is left out."""
        rest, at = b"", 0
        with sharedfile.stream(log) as file:
            fd = file.fileno()
            # a terabyte of a hole is no text
            while block := os.pread(fd, min(BLOCK_BYTES, self._left_bytes), at := sharedfile.first_data(fd, at)):
                self._left_bytes, at = self._left_bytes - len(block), at + len(block)
                text = rest + block
                cut = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
                rest = text[cut:] if cut else text[:MOST_LINE_BYTES]
                yield text[:cut]
            if self._left_bytes <= 0 and os.pread(fd, 1, at):
                self.notes.append(f"of the log of attempt {attempt} only a part is drawn: the logs are longer than "
                                  f"{MOST_LOG_BYTES >> 30} GiB")
        yield rest

    def _take(self, text: bytes, losses: Points, times: Points) -> None:
        try:
            found = within(OWN_PATTERNS_S, lambda: name_figures(text, self._patterns))
        except TookTooLong:
            self.notes.append("a regular expression of progress takes too long: the known forms of lines are used")
            self._patterns = (AUTO, AUTO, AUTO)
            found = name_figures(text, self._patterns)
        for points, new in zip((losses, times), found, strict=True):
            points += new
            if len(points) > MOST_KEPT:
                points[:] = thin(points, MOST_KEPT // 2)


def name_figures(text: bytes, patterns: Patterns) -> tuple[Points, Points]:
    """Losses and seconds per step of a piece of a log, each with its step, and once however many ranks tell it."""
    step, loss, step_time = patterns
    text = cut_lines(text).replace(b"\r", b"\n")   # bars end with it: one line each
    if patterns == (AUTO, AUTO, AUTO):
        lines = zip(text.split(b"\n"), text.lower().split(b"\n"), strict=True)
        text = b"\n".join([line for line, small in lines if any(word in small for word in _WORDS)])
    if not text:
        return [], []
    steps = [(_line_start(text, named.start), named.step) for named in named_steps(text, step)]
    return _beside(text, steps, named_losses(text, loss)), _beside(text, steps, named_step_times(text, step_time))


def _beside(text: bytes, steps: Sequence[tuple[int, int]], values: Sequence[tuple[int, float]]) -> Points:
    """Each value with the step of its line, else with the last one before it; the first value of a step counts."""
    of_line: dict[int, int] = {}
    for start, step in steps:
        of_line.setdefault(start, step)
    found: Points = []
    at = 0
    before: int | None = None
    for start, value in values:
        line = _line_start(text, start)
        while at < len(steps) and steps[at][0] <= line:
            before, at = steps[at][1], at + 1
        beside = of_line.get(line, before)
        if beside is not None and (not found or found[-1][0] != beside):
            found.append((beside, value))
    return found


def _line_start(text: bytes, at: int) -> int:
    """Where the line begins in which this place is; a match may begin with the end of the line before."""
    return text.rfind(b"\n", 0, at + (text[at:at + 1] == b"\n")) + 1
