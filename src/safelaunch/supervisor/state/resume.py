"""What the next attempt goes on from: a checkpoint, as far as their folder has told, and a step that waits."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.checkpoints.model import Checkpoint
from safelaunch.supervisor.io.held import HeldNext

DEADLINE_S = 3.0        # a search of some hundred checkpoints takes 0.1 s; doubled each time it is too short
MOST_DEADLINE_S = 60.0


class ResumePoint:
    """The newest complete checkpoint; `is_unknown`: they could not be looked at, which is not "none"."""

    def __init__(self) -> None:
        self.newest: Checkpoint | None = None
        self.saved_t = 0.0                       # when it was written, where its name tells no step
        self.whole_steps: tuple[int, ...] = ()   # of all complete checkpoints that the next attempt could go on from
        self.deadline_s = DEADLINE_S
        self.is_unknown = False
        self.held: HeldNext | None = None        # its step, where that waits beside the last one (restart.warm)

    def take_held(self) -> HeldNext:
        """That step, or the place for one."""
        if self.held is None:
            self.held = HeldNext()
        return self.held

    def mark_unknown(self) -> None:
        """Nobody knows."""
        self.is_unknown = True

    def mark_late(self) -> None:
        """The search was too slow; the next one gets more time."""
        self.is_unknown, self.deadline_s = True, min(MOST_DEADLINE_S, self.deadline_s * 2)

    def mark_unreadable(self) -> None:
        """The folder has answered by an error."""
        self.is_unknown, self.deadline_s = True, DEADLINE_S

    def note_found(self, complete: Sequence[Checkpoint], saved_t: float = 0.0) -> None:
        """These are complete, the newest one first."""
        self.saved_t = saved_t
        self.is_unknown, self.deadline_s = False, DEADLINE_S
        self.newest = complete[0] if complete else None
        self.whole_steps = tuple(one.step for one in complete if one.step is not None)
