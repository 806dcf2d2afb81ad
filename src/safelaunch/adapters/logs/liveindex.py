"""The index of a log that grows, kept by disposable children while the attempt lives.

After a failure only the tail that no child has read is left to be read. The children take little from the training:
nice 19, one at a time, none before STEP of new log, and at most SHARE of a core in a burst. Nothing depends on them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from safelaunch.adapters.logs import logindex
from safelaunch.adapters.probe import REAP_WITHIN_S, RESET_SIGNALS, is_gone_within
from safelaunch.core.why import rulebook
from safelaunch.core.why.findings import Rule

STEP = 32 << 20         # of new log that is worth a child: it is read in 0.05-0.3 s
PUBLISH_EVERY = 256 << 20   # of the log; whoever has the published one only has less than that left to read
MOST_PUBLISHED = 8 << 20    # bytes of it: that of a healthy log of 20 GB has 60 kB
DEADLINE_S = 120.0      # 20 GB that nobody has looked at so far, on a core that others use
SHARE = 0.1             # of a core: after a child that took 0.2 s of it none is begun for 2 s


class LiveIndex:
    """Keeps the index of one log in a file beside it. `keep` is cheap; call it often."""

    def __init__(self, log: Path, file: Path, rules: tuple[Rule, ...] = ()) -> None:
        self.log, self.file, self.rules = log, file, rules
        self._pid = 0
        self._known = 0                 # how much of the log is known, or being read
        self._published = 0             # how much the published one knows
        self._started_s = self._next_s = -1e9
        self.cpu_s = 0.0                # what all children have taken

    def keep(self, size: int, now_s: float) -> bytes | None:
        """See that the index follows a log that is `size` bytes long; its text, when that is worth publishing anew."""
        if self._pid:
            self._collect(now_s)
            if self._pid == 0 and self._known - self._published >= PUBLISH_EVERY:
                self._published = self._known
                return read_text(self.file)
        if self._pid == 0 and size - self._known >= STEP and now_s >= self._next_s:
            self._begin(size, now_s)
        elif size < self._known:
            self._known = self._published = 0   # somebody has cut the log
        return None

    def close(self) -> None:
        """End the child, should one be at it."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            if is_gone_within(self._pid, REAP_WITHIN_S):
                self._pid = 0

    def _begin(self, size: int, now_s: float) -> None:
        try:
            pid = os.fork()
        except OSError:   # EAGAIN, ENOMEM: it will be looked at again
            self._next_s = now_s + DEADLINE_S
            return
        if pid == 0:
            _be_the_child(lambda: update(self.log, self.file, self.rules))
        self._pid, self._known, self._started_s = pid, size, now_s

    def _collect(self, now_s: float) -> None:
        try:
            pid, _, usage = os.wait4(self._pid, os.WNOHANG)
        except ChildProcessError:   # a waitpid(-1) of somebody else took it
            self._pid = 0
            return
        if pid == self._pid:
            took_s = usage.ru_utime + usage.ru_stime
            self.cpu_s += took_s
            self._pid, self._next_s = 0, self._started_s + took_s / SHARE
        elif now_s - self._started_s > DEADLINE_S:
            self.close()


def update(log: Path, file: Path, rules: tuple[Rule, ...] = ()) -> None:
    """Bring the index in `file` up to date; `rules` are those of rule packs."""
    logindex.save(logindex.update(logindex.load(file), log, (*rulebook.RULES, *rules)), file)


def read_text(file: Path) -> bytes | None:
    """The index in `file` as it may be published; None = there is none, or it is too long."""
    try:
        return file.read_bytes() if file.stat().st_size <= MOST_PUBLISHED else None
    except OSError:
        return None


def _be_the_child(work: Callable[[], None]) -> NoReturn:
    """Do it with the lowest priority, with none of the parent's files and handlers, and leave."""
    try:
        signal.set_wakeup_fd(-1)
        for number in RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)   # should the parent die, nobody else would end it
        os.closerange(3, 1 << 16)
        os.nice(19)
        with contextlib.suppress(OSError, MemoryError):
            work()
    finally:
        os._exit(0)
