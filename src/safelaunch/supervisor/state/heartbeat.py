"""What this leader's last heartbeat said, and since when nobody can read an older one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from safelaunch.base.timing import SETTLE_S


class Urgent(NamedTuple):
    """What of a heartbeat cannot wait for the next one. Without the next job's number, a guard that ends an orphaned
    job cannot free that one. Then it waits for a dead node (seen in a drill).
    """

    successor: str | None
    attempt: int | None
    standby: str | None
    eligible: list[str]    # hosts of standbys


class ShownHeartbeat:
    """The last heartbeat: its counter, its urgent part, and the standbys that it lists."""

    def __init__(self) -> None:
        self.count = 0
        self.urgent: Urgent | None = None
        self.eligible: tuple[str, ...] = ()     # hosts of standbys, as listed
        self._struck_off: int | None = None     # the ticket of a heartbeat that lists a standby no longer
        self._struck_s: float | None = None     # since when the folder has it

    def count_from(self, count: int) -> None:
        """A leader starts: a standby takes a counter that goes back for one that stands."""
        self.count = count

    def show(self, urgent: Urgent) -> int:
        """The counter of a new heartbeat that says this."""
        self.count += 1
        self.urgent = urgent
        return self.count

    def begin_with(self, eligible: Sequence[str]) -> None:
        """An earlier leader's heartbeat listed these."""
        self.eligible = tuple(eligible)

    def list_standbys(self, eligible: Sequence[str], ticket: int) -> None:
        """The heartbeat with this ticket lists these, and perhaps a standby no longer."""
        if not set(eligible).issuperset(self.eligible):
            self._struck_off, self._struck_s = ticket, None
        self.eligible = tuple(eligible)

    def check_striking_off(self, eligible: Sequence[str], is_durable: Callable[[int], bool], now_s: float,
                           confirmed_s: float) -> bool:
        """Whether a standby that is no longer listed may not have read that yet, or has acted before, unseen so far."""
        if not set(eligible).issuperset(self.eligible):
            return True   # the next heartbeat is due at once
        if self._struck_off is None:
            return False
        if self._struck_s is None and is_durable(self._struck_off):
            self._struck_s = now_s
        if self._struck_s is None or confirmed_s < self._struck_s + SETTLE_S:
            return True
        self._struck_off = None
        return False
