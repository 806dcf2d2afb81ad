"""Follows the seconds per step of the live attempt, and reports once when they grow for good."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.core.progress.lines import Talk
from safelaunch.core.progress.steplines import step_lines
from safelaunch.core.slow import pace
from safelaunch.core.slow.changepoint import PaceChange
from safelaunch.core.slow.steppace import to_event
from safelaunch.supervisor import listening
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.clock import Timer

JOURNAL_S = 3600.0   # between two lines with the level; a supervisor that starts knows an older one


def follow(lead: Leader, number: int, text: bytes, talk: Talk) -> None:
    """Take in new lines of the log, which say `talk`."""
    if not lead.plan.slow.is_on:
        return
    known = lead.running.pace or pace.go_on(lead.state.pace, lead.plan.slow.tolerance)
    known = pace.of_attempt(known, number)
    if talk.step is None:   # nothing to measure, and cheap
        lead.running.goes_so_fast(replace(known, phase=known.phase or "".join(talk.signs[-1:])))
        return
    read_s = lead.running.grew_s
    nothing: tuple[pace.LogPace, tuple[PaceChange, ...]] = (known, ())
    known, changes = listening.read_figures(
        lead, text, lambda cut, patterns: pace.take_in(nothing[0], *step_lines(cut, patterns), read_s), nothing)
    lead.running.goes_so_fast(known)
    for change in changes:
        _report(lead, known, change)
    level = pace.level_of(known)
    if level is not None and lead.clock.is_due(Timer.STEP_TIME, JOURNAL_S) and not changes:
        lead.record(lead.writer.event("step_time", **to_event(level)))


def _report(lead: Leader, known: pace.LogPace, change: PaceChange) -> None:
    """Once: the journal holds the new level, with which a later supervisor goes on."""
    level = pace.level_of(known)
    if level is None:
        return
    event = "slower_over" if change.is_recovery else "slower"
    lead.record(lead.writer.event(
        event, **to_event(level), since_step=change.step, from_s=round(change.from_s, 4),
        confidence=round(change.confidence, 5)))
    if change.is_recovery:
        lead.say(f"steps are as fast as before since step {change.step}: {change.to_s:.4g} s instead of "
                 f"{change.from_s:.4g} s")
        return
    lead.say(f"!!! SLOWER: steps take {change.to_s:.4g} s instead of {change.from_s:.4g} s "
             f"({100 * (change.to_s / change.from_s - 1):.2g} % longer) since step {change.step}; nothing is ended")
