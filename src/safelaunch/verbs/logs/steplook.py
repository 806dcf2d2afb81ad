"""What safelaunch reads of a training's steps in a log: for `safelaunch progress`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from safelaunch.base.io import sharedfile
from safelaunch.base.io.cputime import TookTooLong, within
from safelaunch.base.secretmask import mask
from safelaunch.config.kinds.kinds import WrongValue, check_step_pattern
from safelaunch.errors import UsageError
from safelaunch.run.io import runfolder
from safelaunch.trainlog.epochs import Named, line_at, line_begin
from safelaunch.trainlog.figures import measure
from safelaunch.trainlog.lines import SHOWN_CHARS, Unread, leave_unread, place_in
from safelaunch.trainlog.steps import AUTO, MOST_LINE_BYTES, carry_on, cut_lines, named_steps, total_behind
from safelaunch.verbs.common import runs

STDIN = 0
PIECE_BYTES = 1 << 20
MOST_BYTES = 1 << 30
PIECE_S = 20.0          # of processor time, for a pattern of the user's own
TAIL_BYTES = 64 << 10   # of the log, whose figures are shown
SHOWN = 3               # lines that name no step


class LogToRead(NamedTuple):
    """A log ("-" is standard input), and the pattern for its steps."""

    path: str
    pattern: str


def find(which: str | None, pattern: str | None) -> LogToRead:
    """The file of that name, else the newest log of the run that is meant, with the run's own pattern."""
    try:
        check_step_pattern(pattern or AUTO)
    except WrongValue as wrong:
        raise UsageError(f"--pattern {pattern}: {wrong}", hint=r"for instance --pattern 'batch (\d+)'") from wrong
    if which is not None and (which == "-" or Path(which).is_file()):
        return LogToRead(which, pattern or AUTO)
    if which is not None and not Path(which).exists() and ("/" in which or "." in which):
        raise UsageError(f"{which}: no such file", hint="safelaunch progress RUN reads the newest log of a run")
    run = runs.load(which)
    attempt = run.state().attempt
    if attempt is None:
        raise UsageError(f"{run.plan.name} has started no attempt yet, so it has no log",
                         hint="safelaunch progress LOG reads any log")
    log = run.dir / runfolder.attempt_folder(attempt.number) / "main.log"
    return LogToRead(str(log), pattern or run.plan.step_pattern)


class _Look:
    """What was read so far."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._known = pattern, b""
        self.first: dict[str, Any] | None = None
        self.last: dict[str, Any] | None = None
        self.total: int | None = None
        self.lines = self.read = 0
        self.unread, self.others, self.tail = Unread(), [b""][:0], b""

    def take(self, piece: bytes) -> None:
        """More whole lines; raises TookTooLong."""
        text, since = cut_lines(self._known + piece), len(self._known)
        found = [one for one in within(PIECE_S, lambda: named_steps(text, self._pattern)) if one.start >= since - 1]
        if found:
            self.first = self.first or self._tell(text, since, found[0])
            self.last, self.total = self._tell(text, since, found[-1]), total_behind(text, found[-1])
        begins = {text.rfind(b"\n", 0, line_begin(text, one.start)) + 1 for one in found}
        at, others = since, []
        for line in text[since:].split(b"\n"):
            if at not in begins and line.strip():
                others.append(line)
            at += len(line) + 1
        self.lines += len(piece.splitlines())
        self.read += len(begins)
        self.unread, self.others = leave_unread(self.unread, b"\n".join(others)), [*self.others, *others][-SHOWN:]
        self._known, self.tail = carry_on(text, self._pattern), (self.tail + piece)[-TAIL_BYTES:]

    def _tell(self, text: bytes, since: int, one: Named) -> dict[str, Any]:
        begin = line_begin(text, one.start)
        return {"step": one.step, "line": self.lines + text.count(b"\n", since, begin) + 1,
                "text": _shown(line_at(text, begin))}


def look(log: LogToRead) -> dict[str, Any]:
    """The object of `safelaunch progress --json` (docs/verbs.md); raises UsageError for what cannot be read."""
    seen = _Look(log.pattern)
    try:
        for piece in _pieces(log.path):
            seen.take(piece)
    except TookTooLong as error:
        raise UsageError(f"--pattern {log.pattern}: it took {error} for {PIECE_BYTES >> 20} MiB of {log.path}",
                         hint="write it so that a line can match in one way only") from error
    except OSError as error:
        raise UsageError(f"{log.path}: {error.strerror or error}") from error
    tail = cut_lines(seen.tail)
    figures = measure(tail)
    loss = figures.loss if figures.loss is None or abs(figures.loss) < float("inf") else str(figures.loss)
    return {"v": 1, "log": log.path, "pattern": log.pattern, "lines": seen.lines, "read": seen.read,
            "first": seen.first, "last": seen.last, "total": seen.total, "place": place_in(tail) or None,
            "step_time_s": figures.step_s, "typical_step_time_s": figures.typical_step_s, "loss": loss,
            "unread": {"lines": seen.unread.lines, "nearest": mask(seen.unread.line) or None,
                       "last": [_shown(line) for line in seen.others]}}


def _shown(line: bytes) -> str:
    return mask(line.decode(errors="replace").strip())[:SHOWN_CHARS]


def _pieces(path: str) -> Iterator[bytes]:
    """The log in pieces of whole lines, without pieces of zeros; of a line that is longer, its begin."""
    descriptor = os.dup(STDIN) if path == "-" else sharedfile.open_log(path)
    with os.fdopen(descriptor, "rb") as file:
        rest, size = b"", 0
        while (more := file.read(PIECE_BYTES)) and size < MOST_BYTES:
            size += len(more)
            if more.count(0) == len(more):
                continue
            whole, end, rest = (rest + more).rpartition(b"\n")
            rest = rest if len(rest) <= PIECE_BYTES else rest[:MOST_LINE_BYTES]
            if whole or end:
                yield whole + end
        if rest:
            yield rest
