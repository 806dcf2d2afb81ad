"""The course of a supervisor: its phase, why its job ends, and the exit code with which it leaves."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.decide.facts.phase import Phase
from safelaunch.supervisor.state.tasks import Step


class Course:
    """`ending`: why Slurm ends the job (decide.ends); `final`: the exit code, or DEMOTED, once this one leaves."""

    def __init__(self) -> None:
        self.phase = Phase.BORN
        self.on_enter: Callable[[Phase, Phase], None] = lambda before, after: None   # the simulation listens
        self.term_s: float | None = None    # when a TERM came, monotonic
        self.was_told = False               # by a TERM, be it explained or not
        self.limit_near = False
        self.ending: str | None = None
        self.asked_who = 0                  # the attempt of which Slurm was asked who ended its step
        self.unread = 0                     # the attempt whose step Slurm ended in words that are not known
        self.end_act: Step | None = None    # its own job's cancel, announced
        self.final: int | None = None

    def enter(self, phase: Phase) -> None:
        """It is in this phase now, perhaps as before."""
        if phase is not self.phase:
            before, self.phase = self.phase, phase
            self.on_enter(before, phase)

    def note_term(self, now_s: float) -> None:
        """Someone has sent a TERM; the first one counts."""
        if self.term_s is None:
            self.term_s, self.was_told = now_s, True

    def expect_term(self, until_s: float) -> None:
        """Slurm is ending the job, but its TERM has not come: it counts as received by then."""
        self.term_s = until_s

    def forget_term(self) -> None:
        """It was nothing: Slurm goes on running the job."""
        self.term_s = None

    def note_limit_near(self) -> None:
        """The job's time limit comes soon."""
        self.limit_near = True

    def note_ending(self, ending: str) -> None:
        """It is known why."""
        self.ending = ending

    def note_asked_who(self, attempt: int) -> None:
        """Slurm was asked who ended this attempt's step."""
        self.asked_who = attempt

    def note_unread(self, attempt: int) -> None:
        """Slurm ended this attempt's step with an unknown message."""
        self.unread = attempt

    def announce_end(self, act: Step) -> None:
        """It is going to cancel its own job."""
        self.end_act = act

    def end(self, final: int) -> None:
        """It leaves with this code after this tick."""
        self.final = final
