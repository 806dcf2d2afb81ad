"""A run's claims and journal for a person's command: generation 0, so that no living leader steps down for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from safelaunch.base.io import durable
from safelaunch.base.model import Event
from safelaunch.node.host import short_host
from safelaunch.run.io import journal


class LoginActor:
    """run.acts.Actor on a login node: it touches the folder directly, and every write raises OSError."""

    def __init__(self, run_dir: Path, seq: int = 0, host: str = "", clock: Callable[[], float] = time.time,
                 pid: int | None = None, sync: durable.Sync = os.fsync) -> None:
        """`seq`: the number of generation 0's last line; numbers tell lines apart."""
        self._run_dir, self._folder, self._clock, self._pid = run_dir, journal.Direct(run_dir, sync), clock, pid
        self.writer = journal.Writer(self._folder, 0, host or short_host(), clock, pid)
        self.writer.seq = seq

    def claim(self, action: str) -> int:
        """The number of a claim that we have won."""
        number = journal.last_claim(self._run_dir) + 1
        content = journal.render_claim(0, self.writer.host, action, self._clock(), self._pid)
        while not self._folder.publish(f"claims/{number}", content):
            number += 1
        return number

    def record(self, *events: Event) -> None:
        """Append the events."""
        self.writer.write(*events)

    announce = record   # either way the line is on disk before the next step
