"""The run folder as this leader sees it: whether it answers, whether it is still the same, what people ask in it."""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from typing import Any

from safelaunch.base.model import Request
from safelaunch.decide.ends.vanished import Missing, Spot
from safelaunch.run.io.shared import SharedFolder

PATIENCE = 60           # seconds with a folder that answers by an error: a server that restarts says ESTALE, EIO, …


class FolderState:
    """`is_frozen`: it does not answer; `trouble`: what keeps the run's folders from being written; `gone`: it has been
    removed or renamed, in words.
    """

    shared: SharedFolder

    def __init__(self) -> None:
        self.is_frozen = False
        self.trouble: str | None = None
        self.gone: str | None = None
        self.missing = Missing()        # looks that have not found it, so far
        self.route: tuple[Spot, ...] = ()   # the names on the way to it, as they were
        self.refused = 0                # the errno of the last read of the requests; 0: they were read
        self.requests: tuple[Request, ...] = ()
        self.read_s = -math.inf         # before they were read last
        self._id: list[int] | None = None
        self._refusals = 0              # reads of the requests in a row that ended in an error
        self._late_s = -1.0             # the tick in which a shared folder did not answer

    def attach(self, shared: SharedFolder) -> None:
        """This leader's way to it."""
        self.shared = shared

    def refresh(self, now_s: float) -> None:
        """Take in which writes have been delivered."""
        self.shared.poll(now_s)
        self.is_frozen = self.shared.is_frozen

    def freeze(self) -> None:
        """A claim could not be published."""
        self.is_frozen = True

    def was_late(self, now_s: float) -> bool:
        """Whether some folder did not answer in this tick."""
        return self._late_s == now_s

    def mark_late(self, now_s: float) -> None:
        """A folder has not answered in this tick: nobody waits for another answer in it."""
        self._late_s = now_s

    def note_answer(self) -> None:
        """It has answered: the next question is worth its wait."""
        self._late_s = -1.0

    def note_refusal(self, is_late: bool, number: int = 0) -> bool:
        """The read of the requests was late, or ended in an error; whether that has lasted for long."""
        self.refused = number or errno.EIO
        self._refusals += not is_late
        return self._refusals > PATIENCE

    def is_another(self, folder: list[int]) -> bool:
        """Whether it has been replaced since this leader's first read."""
        return folder != (self._id or folder)

    def note_read(self, folder: list[int], requests: Sequence[Request], asked_s: float) -> None:
        """What people ask now, from an answered read that began at `asked_s`."""
        self._refusals, self._id, self.requests, self.read_s = 0, folder, tuple(requests), asked_s
        self.refused, self.missing = 0, Missing()

    def note_route(self, route: Sequence[Sequence[Any]]) -> None:
        """The names on the way to it, as long as it is there."""
        self.route = self.route or tuple(Spot(str(path), int(device), int(inode)) for path, device, inode in route)

    def note_missing(self, missing: Missing) -> None:
        """A look has not found the folder, or another node was asked."""
        self.missing = missing

    def abandon(self, gone: str) -> None:
        """It is gone for good: nothing is written any more, and nothing of it is waited for."""
        self.gone, self.is_frozen, self.requests = gone, False, ()
        self.shared.abandon()

    def take_up(self) -> None:
        """It is there again, under its name."""
        self.gone = None
        self.shared.take_up()

    def note_trouble(self, trouble: str | None) -> None:
        """What keeps the folder from taking writes; None = nothing."""
        self.trouble = trouble
