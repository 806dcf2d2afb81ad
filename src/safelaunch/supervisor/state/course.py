"""The course of a supervisor: its phase, and the exit code with which it leaves."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.core.decide.phase import Phase


class Course:
    """`final`: the exit code of the job, or DEMOTED, once this supervisor is to leave."""

    def __init__(self) -> None:
        self.phase = Phase.BORN
        self.final: int | None = None
        self.on_enter: Callable[[Phase, Phase], None] = lambda before, after: None   # the simulation listens

    def enters(self, phase: Phase) -> None:
        """It is in this phase now, perhaps as before."""
        if phase is not self.phase:
            before, self.phase = self.phase, phase
            self.on_enter(before, phase)

    def ends(self, final: int) -> None:
        """It leaves with this code after this tick."""
        self.final = final
