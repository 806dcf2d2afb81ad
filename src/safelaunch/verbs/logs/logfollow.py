"""`logs -f`: what the training writes, as it writes it, across attempts, until the run has ended."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

from safelaunch.base.io import sharedfile
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.io import runfolder
from safelaunch.verbs.common import runs
from safelaunch.verbs.common.talk import Say
from safelaunch.verbs.logs import loglines
from safelaunch.verbs.logs.attemptlogs import CHUNK_BYTES, AttemptLog, LogChoice, LogPart, starts

POLL_S = 0.1
LOOK_S = 0.5        # for new attempts and for the journal
QUIET_S = 1.0       # the pump is 0.02 s behind; a log that stands still for so long has been copied
HELD_BACK_S = 0.5   # the last lines of an attempt come before the first ones of the next
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")   # not splitlines, which would cut a progress bar's line at each \r
LAG_S = 10.0        # after the end; a frozen folder takes longer, and a reader does not wait for it
OPEN_LOGS = 3       # an attempt that two others have followed writes no more


class Stream:
    """One attempt's log while it grows."""

    def __init__(self, log: AttemptLog, offset: int, keep: loglines.Keep | None, now_s: float) -> None:
        self.log = log
        self.grew_s = now_s
        self._keep = keep
        self._rest = b""
        self._file = sharedfile.stream(log.path)
        self._file.seek(offset)

    def read(self, now_s: float, is_last: bool = False) -> bytes:
        """The new wanted lines; without a filter also a part of a line that is older than QUIET_S."""
        chunk = self._file.read(CHUNK_BYTES)
        if chunk:
            self.grew_s = now_s
        data = self._rest + chunk
        cut = data.rfind(b"\n") + 1
        if self._keep is None:
            # A progress bar ends its line by \r only, a minute before the \n.
            cut = len(data) if now_s - self.grew_s >= QUIET_S else max(cut, data.rfind(b"\r") + 1)
        cut = len(data) if is_last else cut
        ready, self._rest = data[:cut], data[cut:]
        if self._keep is None:
            return ready
        return b"".join(line for line in _LINE.findall(ready) if self._keep(line))

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


class Follower:
    """All open logs of a run."""

    def __init__(self, choice: LogChoice, lines: int | None) -> None:
        self._choice, self._lines = choice, lines
        self._streams: list[Stream] = []
        self._newest = 0
        self._last: AttemptLog | None = None

    def open_new(self, state: State, now_s: float) -> None:
        """Open the logs of attempts that are new; of those that were there first only the last lines are shown."""
        logs = self._choice.logs(state)
        is_first = not self._streams
        fresh = [log for log in logs if log.number > self._newest]
        is_first = is_first and self._newest == 0
        choice = self._choice if is_first else self._choice._replace(begin=lambda log: 0)
        for log, offset in starts(choice, fresh, self._lines if is_first else None):
            self._streams.append(Stream(log, offset, self._choice.keep(log), now_s))
        self._newest = max([self._newest, *(log.number for log in fresh)])
        for stream in self._streams[:-OPEN_LOGS]:
            stream.close()
        self._streams = self._streams[-OPEN_LOGS:]
        for stream in self._streams:   # the journal may have come to know it meanwhile
            known = next((log for log in logs if log.number == stream.log.number), stream.log)
            stream.log = stream.log._replace(attempt=known.attempt, before=known.before)

    def read(self, now_s: float, is_last: bool = False) -> list[LogPart]:
        """What is new and wanted; where something is, more may wait."""
        found = []
        for stream in self._streams:
            data = stream.read(now_s, is_last)
            if data:
                found.append((stream.log, data))
                self._last = stream.log
            if now_s - stream.grew_s < HELD_BACK_S:
                break
        return found

    def idle(self) -> list[LogPart]:
        """An empty part of the last log that a part was of."""
        return [] if self._last is None else [(self._last, b"")]

    def quiet_for_s(self, now_s: float) -> float:
        """For how long no log has grown."""
        return min((now_s - stream.grew_s for stream in self._streams), default=float("inf"))


def follow_logs(choice: LogChoice, lines: int | None, say: Say) -> Iterator[LogPart]:
    """The last `lines` lines and all new ones, until the run (or the named attempt) has ended; the end is reported.
    While nothing is new an empty part comes now and then.
    """
    watch = runs.JournalWatch(choice.run.dir, steps_kept=1, partly=True)
    follower, state = Follower(choice, lines), State()
    look_s, ended_s = 0.0, None
    while True:
        now_s = time.monotonic()
        if now_s >= look_s:
            look_s = now_s + LOOK_S
            journal = watch.poll()
            state = fold(journal.events) if journal is not None else state
            follower.open_new(state, now_s)
            if ended_s is None and _is_over(choice, state):
                ended_s = now_s
        new = follower.read(now_s)
        yield from new
        if ended_s is not None and min(now_s - ended_s, follower.quiet_for_s(now_s)) > QUIET_S:
            yield from follower.read(now_s, is_last=True)
            if state.ended is not None:
                say(runs.describe_end(state.ended))
            return
        if not new:
            yield from follower.idle()
            time.sleep(POLL_S)


def wait_for_last_lines(run: runfolder.Run) -> None:
    """Return once the newest log has been copied: the end of a run is written before the last lines of its log are."""
    state = run.state()
    if state.ended is None or state.attempt is None:
        return
    log = run.dir / runfolder.attempt_folder(state.attempt.number) / "main.log"
    # Where a node's clock is far ahead, nobody knows how long ago that was.
    while abs(age_s := time.time() - state.ended.t) < LAG_S and not _stands_still(log, age_s):
        time.sleep(POLL_S)


def _stands_still(log: Path, age_s: float) -> bool:
    try:
        return min(age_s, time.time() - log.stat().st_mtime) > QUIET_S
    except OSError:
        return False


def _is_over(choice: LogChoice, state: State) -> bool:
    if state.ended is not None:
        return True
    return any(known.number == choice.attempt and known.ended is not None for known in state.attempts)
