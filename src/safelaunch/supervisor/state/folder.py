"""The run folder as this leader sees it: whether it answers, whether it is still the same, what people ask in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from safelaunch.adapters.shared import SharedFolder
from safelaunch.core.model import Request

PATIENCE = 60           # seconds with a folder that answers by an error: a server that restarts says ESTALE, EIO, …


class FolderState:
    """`is_frozen`: it does not answer; `trouble`: what keeps the run's folders from being written."""

    shared: SharedFolder

    def __init__(self) -> None:
        self.is_frozen = False
        self.trouble: str | None = None
        self.requests: tuple[Request, ...] = ()
        self.read_s = -math.inf         # before they were read last
        self._id: list[int] | None = None
        self._refusals = 0              # reads of the requests in a row that ended in an error
        self._late_s = -1.0             # the tick in which a shared folder did not answer

    def opens(self, shared: SharedFolder) -> None:
        """This leader's way to it."""
        self.shared = shared

    def is_seen(self, now_s: float) -> None:
        """Take in which writes have been delivered."""
        self.shared.poll(now_s)
        self.is_frozen = self.shared.is_frozen

    def freezes(self) -> None:
        """A claim could not be published."""
        self.is_frozen = True

    def was_late(self, now_s: float) -> bool:
        """Whether some folder was, in this tick."""
        return self._late_s == now_s

    def is_late(self, now_s: float) -> None:
        """It has not answered in this tick: nobody waits for another answer in it."""
        self._late_s = now_s

    def answers(self) -> None:
        """It has answered: the next question is worth its wait."""
        self._late_s = -1.0

    def refuses(self, is_late: bool) -> bool:
        """The read of the requests was late, or ended in an error; whether that has lasted for long."""
        self._refusals += not is_late
        return self._refusals > PATIENCE

    def is_another(self, folder: list[int]) -> bool:
        """Whether it has been replaced since this leader's first read."""
        return folder != (self._id or folder)

    def is_read(self, folder: list[int], requests: Sequence[Request], asked_s: float) -> None:
        """What people ask now, from an answered read that began at `asked_s`."""
        self._refusals, self._id, self.requests, self.read_s = 0, folder, tuple(requests), asked_s

    def has_trouble(self, trouble: str | None) -> None:
        """Whether it takes writes."""
        self.trouble = trouble
