"""Reads a live log in bounded time: while the leader reads, it hears no guard and no standby."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from safelaunch.base.io.cputime import TookTooLong, within
from safelaunch.base.secretmask import mask
from safelaunch.run.plan import Plan
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.ports import Say
from safelaunch.trainlog.lines import MOST_UNREAD, START_S, UNREAD_S, Talk, leave_unread, tell_unread
from safelaunch.trainlog.steplines import Patterns
from safelaunch.trainlog.steps import AUTO, cut_lines

LISTEN_S = 0.1   # of processor time for one read; 64 KiB of a usual log take 3 ms

T = TypeVar("T")


def read(lead: Leader, text: bytes, look: Callable[[bytes, str], T], nothing: T) -> T:
    """`look(text, pattern)` with the user's pattern; without it where that takes too long; else `nothing`."""
    cut = cut_lines(text)
    pattern = lead.plan.step_pattern
    try:
        return within(LISTEN_S, lambda: look(cut, pattern))
    except TookTooLong as error:
        if pattern == AUTO:
            return nothing
        lead.say(f"progress.step is given up: {pattern!r} took {error} for {len(cut)} bytes of the log; steps are read "
                 "as with progress.step: auto")
    lead.follow(lead.plan._replace(step_pattern=AUTO))
    return read(lead, text, look, nothing)


def read_figures(lead: Leader, text: bytes, look: Callable[[bytes, Patterns], T], nothing: T) -> T:
    """The same for the figures beside the steps: the user's patterns of these are given up on their own."""
    cut, plan = cut_lines(text), lead.plan
    patterns = Patterns(plan.step_pattern, plan.step_time_pattern, plan.loss_pattern)
    try:
        return within(LISTEN_S, lambda: look(cut, patterns))
    except TookTooLong as error:
        if (plan.step_time_pattern, plan.loss_pattern) == (AUTO, AUTO):
            return nothing
        lead.say(f"progress.step_time and progress.loss are given up: they took {error} for {len(cut)} bytes of the "
                 "log; both are read as auto")
    lead.follow(plan._replace(step_time_pattern=AUTO, loss_pattern=AUTO))
    return read_figures(lead, text, look, nothing)


def note_unread(
    plan: Plan, clock: Clock, journal: LeaderJournal, running: RunningAttempt, say: Say, number: int, text: bytes,
    talk: Talk
) -> None:
    """Tell once that no line of an attempt's log names a step, so that nobody waits for what is never seen."""
    attempt = journal.state.attempt
    if talk.mark or attempt is None or attempt.step is not None or attempt.unread is not None:
        running.note_unread(None)
        return
    if (known := running.heard.unread) is None:
        return
    known = leave_unread(known, cut_lines(text))
    running.note_unread(known)
    ran_s = clock.now_s - running.launched_s
    if known.lines and (ran_s >= UNREAD_S or (known.lines >= MOST_UNREAD and ran_s >= START_S)):
        journal.record(journal.event("steps_unread", attempt=number, lines=known.lines, line=mask(known.line),
                                     pattern=plan.step_pattern))
        say(f"step: {tell_unread(mask(known.line), plan.step_pattern)}")
