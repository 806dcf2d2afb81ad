"""The logs of a run's attempts: which of them are asked about, and where the last lines of each begin."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from safelaunch.base.io import sharedfile
from safelaunch.base.plaintext import clean
from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import nodefold
from safelaunch.verbs.logs import loglines

CHUNK_BYTES = 1 << 20
BLOCK_BYTES = 64 << 10
MOST_LINE_BYTES = 64 << 20   # of one of the last lines: of a terabyte without a line end, its end


class AttemptLog(NamedTuple):
    """main.log of one attempt; `attempt` None where the journal does not know it (yet)."""

    number: int
    path: Path
    attempt: Attempt | None
    before: Attempt | None = None   # the attempt that the journal has before it

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.attempt.nodes if self.attempt else ()

    @property
    def header(self) -> str:
        """── attempt 2 · job 12 · n[0-3] · from step 40 ──"""
        parts = [f"attempt {self.number}"]
        if self.attempt is not None:
            parts += [f"job {self.attempt.job}", nodefold.fold(self.attempt.nodes)]
            parts += [f"from step {self.attempt.resume_step}"] if self.attempt.resume_step is not None else []
            if self.attempt.lost is not None:   # the header of such an attempt named a step that it never went on from
                parts.append("not loaded" if self.attempt.lost_surely else "perhaps not loaded")
        return clean(f"── {' · '.join(parts)} ──")


Begin = Callable[[AttemptLog], int]   # the byte at which the wanted part of a log begins; its end = it has none
LogPart = tuple[AttemptLog, bytes]   # what an attempt's log holds, in pieces as they are read


class LogChoice(NamedTuple):
    """Which attempts and lines were asked for; None = all."""

    run: Run
    attempt: int | None
    rank: int | None
    host: str | None
    grep: str | None
    begin: Begin = lambda log: 0

    def logs(self, state: State) -> list[AttemptLog]:
        """The wanted attempts' logs that exist, in order."""
        return [log for log in find_logs(self.run, state) if self.attempt in (None, log.number)]

    def keep(self, log: AttemptLog) -> loglines.Keep | None:
        """Whether a line of that log is wanted; None = all are."""
        return loglines.make_filter(self.run.plan, log.nodes, self.rank, self.host, self.grep)


def find_logs(run: Run, state: State) -> list[AttemptLog]:
    """The logs of all attempts that have one, in order."""
    known = {attempt.number: attempt for attempt in state.attempts}
    found = []
    for path in run.log_files:
        if path.parent.name.isdecimal():
            number = int(path.parent.name)
            earlier = max((one for one in known if one < number), default=None)
            found.append(AttemptLog(number, path, known.get(number), known[earlier] if earlier is not None else None))
    return found


def starts(choice: LogChoice, logs: list[AttemptLog], lines: int | None) -> list[tuple[AttemptLog, int]]:
    """Each log with the byte at which its wanted part of the last `lines` begins. Those without a part are left out,
    but not the last log, which may grow.
    """
    begins = {log.number: choice.begin(log) for log in logs}
    wanted = [log for log in logs if log is logs[-1] or not 0 < log.path.stat().st_size <= begins[log.number]]
    return [(log, max(offset, begins[log.number])) for log, offset in _tails(wanted, lines)]


def _tails(logs: list[AttemptLog], lines: int | None) -> list[tuple[AttemptLog, int]]:
    if lines is None:
        return [(log, 0) for log in logs]
    if lines == 0:
        return [(log, log.path.stat().st_size) for log in logs[-1:]]   # for `-f -n 0`: what comes from now on
    found: list[tuple[AttemptLog, int]] = []
    left = lines
    for log in reversed(logs):
        if left <= 0:
            break
        offset, count = tail_offset(log.path, left)
        left -= count
        found.append((log, offset))
    return found[::-1]


def tail_offset(path: Path, lines: int) -> tuple[int, int]:
    """Where the last `lines` lines begin, and how many there are; reads backwards from the end, never the whole file.

    An unfinished last line counts as one; a line that is too long begins late.
    """
    with sharedfile.stream(path) as file:
        start = file.seek(0, os.SEEK_END)
        if start == 0:
            return 0, 0
        start -= 1   # the last byte ends the last line or is part of it: no line begins behind it
        count, floor = 1, start - MOST_LINE_BYTES
        while start > max(0, floor):
            size = min(BLOCK_BYTES, start)
            file.seek(start - size)
            block = file.read(size)
            position = len(block)
            while (position := block.rfind(b"\n", 0, position)) >= 0:
                if count == lines:
                    return start - size + position + 1, lines
                count, floor = count + 1, start - size + position - MOST_LINE_BYTES
            start -= size
    return start, count
