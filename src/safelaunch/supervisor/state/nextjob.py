"""What is known of the way to the run's next job."""

from __future__ import annotations

from safelaunch.adapters.successor import Successor


class NextJob:
    """Slurm's commands for it, and how often Slurm has refused to change it."""

    successor: Successor

    def __init__(self) -> None:
        self.refused_changes = 0

    def is_asked_by(self, successor: Successor) -> None:
        """The plan is known by now."""
        self.successor = successor

    def is_not_changed(self) -> None:
        """Slurm has said no."""
        self.refused_changes += 1
