"""Reads a live log in bounded time: while the leader reads, it hears no guard and no standby."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from safelaunch.base.io.cputime import TookTooLong, within
from safelaunch.base.secretmask import mask
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.ports import Here, Say
from safelaunch.trainlog.lines import MOST_UNREAD, START_S, UNREAD_S, Talk, leave_unread, tell_unread
from safelaunch.trainlog.steplines import Patterns
from safelaunch.trainlog.steps import AUTO, cut_lines

LISTEN_S = 0.1   # of processor time for one read; 64 KiB of a usual log take 3 ms

T = TypeVar("T")


class LiveLog:
    """The log of the live attempt, and what is made of it. A pattern that takes too long is given up for good."""

    def __init__(self, here: Here, clock: Clock, journal: LeaderJournal, running: RunningAttempt, say: Say) -> None:
        self.here, self.clock, self.journal, self.running, self.say = here, clock, journal, running, say
        self._given_up: dict[str, str] = {}

    @property
    def patterns(self) -> Patterns:
        """What is read: the user's own patterns, as far as they are not given up."""
        plan = self.here.plan
        return Patterns(plan.step_pattern, plan.step_time_pattern, plan.loss_pattern)._replace(**self._given_up)

    def read(self, text: bytes, look: Callable[[bytes, str], T], nothing: T) -> T:
        """`look(text, pattern)` with the user's pattern; without it where that takes too long; else `nothing`."""
        cut = cut_lines(text)
        pattern = self.patterns.step
        try:
            return within(LISTEN_S, lambda: look(cut, pattern))
        except TookTooLong as error:
            if pattern == AUTO:
                return nothing
            self.say(f"progress.step is given up: {pattern!r} took {error} for {len(cut)} bytes of the log; steps are "
                     "read as with progress.step: auto")
        self._given_up["step"] = AUTO
        return self.read(text, look, nothing)

    def read_figures(self, text: bytes, look: Callable[[bytes, Patterns], T], nothing: T) -> T:
        """The same for the figures beside the steps: the user's patterns of these are given up on their own."""
        cut, patterns = cut_lines(text), self.patterns
        try:
            return within(LISTEN_S, lambda: look(cut, patterns))
        except TookTooLong as error:
            if (patterns.step_time, patterns.loss) == (AUTO, AUTO):
                return nothing
            self.say(f"progress.step_time and progress.loss are given up: they took {error} for {len(cut)} bytes of "
                     "the log; both are read as auto")
        self._given_up |= {"step_time": AUTO, "loss": AUTO}
        return self.read_figures(text, look, nothing)


def note_unread(log: LiveLog, number: int, text: bytes, talk: Talk) -> None:
    """Tell once that no line of an attempt's log names a step, so that nobody waits for what is never seen."""
    attempt, running = log.journal.state.attempt, log.running
    if talk.mark or attempt is None or attempt.step is not None or attempt.unread is not None:
        running.note_unread(None)
        return
    if (known := running.heard.unread) is None:
        return
    known = leave_unread(known, cut_lines(text))
    running.note_unread(known)
    ran_s = log.clock.now_s - running.launched_s
    if known.lines and (ran_s >= UNREAD_S or (known.lines >= MOST_UNREAD and ran_s >= START_S)):
        pattern = log.patterns.step
        log.journal.record(log.journal.event("steps_unread", attempt=number, lines=known.lines, line=mask(known.line),
                                             pattern=pattern))
        log.say(f"step: {tell_unread(mask(known.line), pattern)}")
