"""What is known of the way to the run's next job."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.decide.facts.after import RunBefore
from safelaunch.supervisor.io.successor import Successor


class NextJob:
    """Slurm's commands for it, how often Slurm has refused to change it, and the runs that come before this one."""

    successor: Successor

    def __init__(self) -> None:
        self.refused_changes = 0
        self.later: Mapping[str, str] = {}   # what a person has changed for later jobs (script.laterjobs)
        self.before: tuple[RunBefore, ...] | None = None   # None = not known yet

    def set_successor(self, successor: Successor) -> None:
        """The plan is known by now."""
        self.successor = successor

    def note_before(self, before: tuple[RunBefore, ...]) -> None:
        """How they are doing is known."""
        self.before = before

    def note_later(self, later: Mapping[str, str]) -> None:
        """What a person wants of later jobs."""
        self.later = later

    def note_refused_change(self) -> None:
        """Slurm has refused to change the next job."""
        self.refused_changes += 1
