"""What the live attempt's silences have taught, and what its hang checks have shown."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.hangs import hang
from safelaunch.hangs.hang import Rhythm
from safelaunch.hangs.late import StepDue, next_due
from safelaunch.hangs.proof import ALL_LOOKS_S, Examination, conclude, counts_at_s
from safelaunch.launch.settings import HangPlan
from safelaunch.stacks.scene import HangVerdict
from safelaunch.trainlog.lines import Talk

STALLED_S = 30.0          # between two reads of the log, which come each 5 s


class HangWatch:
    """The rhythm of one attempt (hangs.hang); times are monotonic seconds."""

    def __init__(self, now_s: float) -> None:
        self._rhythm: Rhythm | None = None
        self._of = 0                    # the attempt that it is about,
        self._nodes = 0                 # and on how many nodes that runs
        self._followed_s = now_s        # when its log was last read
        self._checked: tuple[float, Examination] | None = None    # since when it was silent; what the check showed
        self._failed = 0                # ranks of it that have ended badly beside others
        self.counts_s: float | None = None    # when the present silence counts as a hang, if nothing changes
        self.hung: tuple[int, HangVerdict] | None = None  # attempt, and the verdict of two witnesses

    @property
    def rhythm(self) -> Rhythm:
        assert self._rhythm is not None
        return self._rhythm

    def follow(self, number: int, nodes: int, asked: HangPlan, now_s: float) -> None:
        """The attempt whose log is read; a new one has its own rhythm."""
        if self._rhythm is None or self._of != number:
            self._rhythm = hang.begin(now_s, asked.first_step_s, asked.no_progress_s, self._rhythm,
                                      is_resized=self._nodes != nodes, is_imported=asked.is_imported)
            self._of, self._nodes, self._failed = number, nodes, 0
        elif now_s - self._followed_s > STALLED_S:   # this leader was stopped, and its node perhaps
            self._rhythm = hang.forgive(self._rhythm, now_s - self._followed_s)
        self._followed_s = now_s

    def note_log(self, grew_s: float, talk: Talk) -> None:
        """The log has said this."""
        self._rhythm = hang.update(self.rhythm, grew_s, talk)

    def postpone_check(self, now_s: float) -> None:
        """A check found it alive: the next one comes later."""
        self._rhythm = hang.postpone_check(self.rhythm, now_s)

    def note_alive(self, at_s: float) -> None:
        """Something beside the log has shown that the attempt goes on."""
        self._rhythm = hang.alive(self.rhythm, at_s)

    def note_failed_ranks(self, count: int, now_s: float) -> None:
        """So many, in a step that goes on."""
        if count > self._failed:
            self._rhythm = hang.rank_failed(self.rhythm, now_s)
        self._failed = count

    def note_check(self, examination: Examination) -> None:
        """The result of a check in the present silence."""
        self._checked = (self.rhythm.since_s, examination)

    def conclude(self, now_s: float, looks: Sequence[Examination], more_s: float) -> str:
        """Why these checks show no hang; "" where they do."""
        self._rhythm, why_not = conclude(self.rhythm, now_s, looks, more_s)
        self.counts_s = counts_at_s(self.rhythm, looks)
        return why_not

    def check_before(self, now_s: float, end_s: float) -> None:
        """Slurm ends the job then: the next check is complete before."""
        self._rhythm = hang.check_before(self.rhythm, now_s, end_s - ALL_LOOKS_S)

    def note_hang(self, number: int, verdict: HangVerdict) -> None:
        """Both witnesses say so."""
        self.hung = (number, verdict)

    def earlier_checks(self) -> list[Examination]:
        """The last check in this same silence: a rank that goes on was elsewhere then."""
        return [self._checked[1]] if self._checked is not None and self._checked[0] == self.rhythm.since_s else []

    def is_silent(self, now_s: float) -> bool:
        """Whether the log says nothing for longer than it should."""
        return self._rhythm is not None and now_s > hang.deadline_s(self._rhythm)

    @property
    def is_at_work(self) -> bool:
        """Whether the last check has seen a rank work, or the phase that takes longer than a step."""
        return self.rhythm.is_guess or self.rhythm.alive_s > self.rhythm.since_s

    def is_about(self, number: int) -> bool:
        """Whether it is this attempt that is followed."""
        return self._rhythm is not None and self._of == number

    def due(self) -> StepDue | None:
        """When the next step is late; None = nobody knows."""
        return None if self._rhythm is None else next_due(self._rhythm)

    def calls_in_s(self, now_s: float) -> float | None:
        """Seconds until the attempt would be called hung; None = nothing is followed."""
        return None if self._rhythm is None else hang.deadline_s(self._rhythm) - now_s
