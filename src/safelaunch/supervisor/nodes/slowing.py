"""Follows the figures in the live attempt's log, and reports once what goes wrong without an end.

That is: steps that take longer for good, losses that are no numbers or leap, gradients that explode.
"""

from __future__ import annotations

from functools import partial

from safelaunch.base.numbers import figure, percent
from safelaunch.base.secretmask import mask
from safelaunch.decide.nodes import slowness
from safelaunch.nodehealth.slow import oddfigures, pace
from safelaunch.nodehealth.slow.changepoint import PaceChange
from safelaunch.run.steppace import to_event
from safelaunch.supervisor.common import listening
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.nodes import slowsearch
from safelaunch.supervisor.state.clock import Timer
from safelaunch.trainlog.lines import Talk
from safelaunch.trainlog.steplines import StepLine, step_lines
from safelaunch.trainlog.steps import latest_of

JOURNAL_S = 3600.0   # between two lines with the level; a supervisor that starts knows an older one
MOST_SEARCHED = 2000   # lines of a piece of the log, for the first that is no finite number
MOST_TEXT = 300      # of a line of the log that the journal quotes


def follow(lead: Leader, number: int, text: bytes, since: int, talk: Talk) -> None:
    """Take in new lines of the log, from `since` on, which say `talk`."""
    if not lead.plan.slow.is_on:
        return
    known = lead.running.pace or pace.go_on(lead.state.pace, lead.plan.slow.share)
    known = pace.of_attempt(known, number)
    if talk.step is None:   # nothing to measure, and cheap
        lead.running.note_pace(known._replace(phase=known.phase or "".join(talk.signs[-1:])))
        return
    nothing: tuple[list[StepLine], str] = ([], "")
    lines, phase = listening.read_figures(
        lead, text, partial(step_lines, since=since, most=pace.most_lines(known)), nothing)
    known, changes = pace.take_in(known, lines, phase, lead.running.grew_s)
    lead.running.note_pace(known)
    for change in changes:
        _report(lead, known, change, text)
    slowsearch.judge(lead, number, known)
    level = pace.level_of(known)
    if level is not None and not changes and lead.clock.take_turn(Timer.STEP_TIME, JOURNAL_S):
        lead.journal.record(lead.journal.event("step_time", **to_event(level)))
    if lead.plan.on_nan is not None:
        _watch_figures(lead, number, lines, text)


def _report(lead: Leader, known: pace.LogPace, change: PaceChange, text: bytes) -> None:
    """Once: the journal holds the new level, with which a later supervisor goes on."""
    level = pace.level_of(known)
    if level is None:
        return
    event = "slower_over" if change.is_recovery else "slower"
    nothing: tuple[int | None, int | None] = (None, None)
    _, total = listening.read(lead, text, latest_of, nothing)
    lead.journal.record(lead.journal.event(
        event, **to_event(level), since_step=change.step, from_s=round(change.from_s, 4),
        confidence=round(change.confidence, 5), total=total))
    if change.is_recovery:
        lead.say(f"steps are as fast as before since step {change.step}: {figure(change.to_s, 4)} s instead of "
                 f"{figure(change.from_s, 4)} s")
        return
    lead.say(f"!!! SLOWER: steps take {figure(change.to_s, 4)} s instead of {figure(change.from_s, 4)} s "
             f"({percent(change.to_s / change.from_s - 1)} longer) since step {change.step}; "
             f"{slowness.what_follows(lead.state, lead.plan)}")


def _watch_figures(lead: Leader, number: int, lines: list[StepLine], text: bytes) -> None:
    """After a takeover the log's end is read again: what is journalled is not told twice, NaN once an attempt. Of quick
    steps only the newest lines are followed; where NaN began all lines of the piece tell.
    """
    figures, found = oddfigures.watch_figures(lead.running.figures, number, lines)
    if any(odd.kind == oddfigures.NAN for odd in found):
        nothing: tuple[list[StepLine], str] = (lines, "")
        every, _ = listening.read_figures(lead, text, partial(step_lines, most=MOST_SEARCHED), nothing)
        figures, found = oddfigures.watch_figures(lead.running.figures, number, every)
    lead.running.note_figures(figures)
    for odd in found:
        if any((one.attempt, one.kind) == (number, odd.kind) and (odd.kind == oddfigures.NAN or one.step >= odd.step)
               for one in lead.state.odd):
            continue
        event = lead.journal.event("odd_figure", attempt=number, kind=odd.kind, step=odd.step, value=str(odd.value),
                                   usual=odd.usual, before=odd.before, line=mask(odd.text)[:MOST_TEXT])
        lead.journal.record(event)
        is_end = odd.kind == oddfigures.NAN and lead.plan.on_nan != "report"
        then = "" if is_end else "; nothing is ended"
        lead.say(f"!!! {oddfigures.tell_odd(event.data)}, since step {odd.step}{then}")
