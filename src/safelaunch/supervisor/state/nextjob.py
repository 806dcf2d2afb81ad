"""What is known of the way to the run's next job."""

from __future__ import annotations

from safelaunch.adapters.successor import Successor
from safelaunch.core.decide.after import RunBefore


class NextJob:
    """Slurm's commands for it, how often Slurm has refused to change it, and the runs that come before this one."""

    successor: Successor

    def __init__(self) -> None:
        self.refused_changes = 0
        self.before: tuple[RunBefore, ...] | None = None   # None = not known yet

    def is_asked_by(self, successor: Successor) -> None:
        """The plan is known by now."""
        self.successor = successor

    def waits_for(self, before: tuple[RunBefore, ...]) -> None:
        """How they are doing is known."""
        self.before = before

    def is_not_changed(self) -> None:
        """Slurm has said no."""
        self.refused_changes += 1
