"""`logs --since`: where in each attempt's log the lines of that time begin.

The log's own time stamps say it; where its lines have none, the journal says at which step the training was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import BinaryIO

from safelaunch.base.io import sharedfile
from safelaunch.base.io.cputime import TookTooLong, within
from safelaunch.config.values import parse_duration_s
from safelaunch.errors import ParseError, UsageError
from safelaunch.run.io.runfolder import Run
from safelaunch.status import costs
from safelaunch.trainlog.steps import cut_lines, named_steps
from safelaunch.verbs.common import talk
from safelaunch.verbs.common.talk import Say
from safelaunch.verbs.logs.attemptlogs import CHUNK_BYTES, AttemptLog
from safelaunch.verbs.logs.linetimes import first_since

OWN_PATTERNS_S = 20.0   # of processor time


def parse_since(text: str, now: float) -> float:
    """Epoch seconds of "10m" (ago) or "2026-11-25T09:00" (this machine's zone, unless it names one)."""
    try:
        return now - parse_duration_s(text)
    except ParseError:
        pass
    try:
        t = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"--since {text}: expected a span such as 10m, or a time such as 2026-11-25T09:00") from error
    if t > now:
        raise UsageError(f"--since {text}: that time lies ahead; it is {talk.clock(now)}")
    return t


class Since:
    """The wanted time; of logs that do not tell theirs it `say`s so."""

    def __init__(self, run: Run, since_t: float, say: Say) -> None:
        self._run, self._since_t, self._say = run, since_t, say
        self._offset_s = time.localtime(since_t).tm_gmtoff

    def start(self, log: AttemptLog) -> int:
        """The byte at which the wanted lines of a log begin, its end if it has none. Where nobody can say: 0."""
        stat, known = log.path.stat(), log.attempt
        if max(stat.st_mtime, (known.ended_t or 0.0) if known else 0.0) < self._since_t:
            return stat.st_size
        if known is not None and known.started_t >= self._since_t:
            return 0
        started_t = max(0.0, known.started_t if known is not None else self._since_t)   # a foreign line may say -1e30
        with sharedfile.stream(log.path) as file:
            place, has_times = first_since(_lines(file), self._since_t, started_t, time.time(), self._offset_s)
            if has_times:
                return stat.st_size if place is None else place
            file.seek(0)
            return self._by_steps(log, file)

    def _by_steps(self, log: AttemptLog, file: BinaryIO) -> int:
        tracks = costs.follow(self._run.journal().events, self._since_t)
        points = next((track.points for track in tracks if track.number == log.number), ())
        before = [(t, step) for t, step in points if t <= self._since_t]
        if before:
            t, step = before[-1]
            try:   # the pattern is of whoever wrote train.yaml
                place = within(OWN_PATTERNS_S, lambda: _behind(file, step, self._run.plan.step_pattern))
            except TookTooLong:
                place = None
            if place is not None:
                self._say(f"attempt {log.number}: no line has a time; shown from behind step {step}, which the "
                          f"journal knows of {talk.clock(t)}")
                return place
        self._say(f"attempt {log.number}: no line has a time, and the journal knows no earlier step; "
                  "shown whole")
        return 0


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Each line, or piece of a very long one, with the byte at which it begins."""
    place = 0
    while line := file.readline(CHUNK_BYTES):
        yield place, line
        place += len(line)


def _behind(file: BinaryIO, step: int, pattern: str) -> int | None:
    """Where the first line behind the one of that step begins; None = the log names no such step."""
    for place, line in _lines(file):
        if any(named.step >= step for named in named_steps(cut_lines(line), pattern)):
            return place + len(line)
    return None
