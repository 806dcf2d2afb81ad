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
from safelaunch.supervisor.nodes import slowsearch
from safelaunch.supervisor.state.clock import Timer
from safelaunch.supervisor.state.listening import LiveLog
from safelaunch.supervisor.state.suspicion import Suspicions
from safelaunch.trainlog.lines import Talk
from safelaunch.trainlog.steplines import StepLine, step_lines
from safelaunch.trainlog.steps import latest_of

JOURNAL_S = 3600.0   # between two lines with the level; a supervisor that starts knows an older one
MOST_SEARCHED = 2000   # lines of a piece of the log, for the first that is no finite number
MOST_TEXT = 300      # of a line of the log that the journal quotes


def follow(log: LiveLog, suspects: Suspicions, number: int, text: bytes, since: int, talk: Talk) -> None:
    """Take in new lines of the log, from `since` on, which say `talk`."""
    journal, running, plan = log.journal, log.running, log.here.plan
    if not plan.slow.is_on:
        return
    known = running.pace or pace.go_on(journal.state.pace, plan.slow.share)
    known = pace.of_attempt(known, number)
    if talk.step is None:   # nothing to measure, and cheap
        running.note_pace(known._replace(phase=known.phase or "".join(talk.signs[-1:])))
        return
    nothing: tuple[list[StepLine], str] = ([], "")
    lines, phase = log.read_figures(text, partial(step_lines, since=since, most=pace.most_lines(known)), nothing)
    known, changes = pace.take_in(known, lines, phase, running.grew_s)
    running.note_pace(known)
    for change in changes:
        _report(log, known, change, text)
    slowsearch.judge(suspects, running, log.say, number, known)
    level = pace.level_of(known)
    if level is not None and not changes and log.clock.take_turn(Timer.STEP_TIME, JOURNAL_S):
        journal.record(journal.event("step_time", **to_event(level)))
    if plan.on_nan is not None:
        _watch_figures(log, number, lines, text)


def _report(log: LiveLog, known: pace.LogPace, change: PaceChange, text: bytes) -> None:
    """Once: the journal holds the new level, with which a later supervisor goes on."""
    level = pace.level_of(known)
    if level is None:
        return
    event = "slower_over" if change.is_recovery else "slower"
    nothing: tuple[int | None, int | None] = (None, None)
    _, total = log.read(text, latest_of, nothing)
    log.journal.record(log.journal.event(
        event, **to_event(level), since_step=change.step, from_s=round(change.from_s, 4),
        confidence=round(change.confidence, 5), total=total))
    if change.is_recovery:
        log.say(f"steps are as fast as before since step {change.step}: {figure(change.to_s, 4)} s instead of "
                 f"{figure(change.from_s, 4)} s")
        return
    log.say(f"!!! SLOWER: steps take {figure(change.to_s, 4)} s instead of {figure(change.from_s, 4)} s "
             f"({percent(change.to_s / change.from_s - 1)} longer) since step {change.step}; "
             f"{slowness.what_follows(log.journal.state, log.here.plan)}")


def _watch_figures(log: LiveLog, number: int, lines: list[StepLine], text: bytes) -> None:
    """After a takeover the log's end is read again: what is journalled is not told twice, NaN once an attempt. Of quick
    steps only the newest lines are followed; where NaN began all lines of the piece tell.
    """
    figures, found = oddfigures.watch_figures(log.running.figures, number, lines)
    if any(odd.kind == oddfigures.NAN for odd in found):
        nothing: tuple[list[StepLine], str] = (lines, "")
        every, _ = log.read_figures(text, partial(step_lines, most=MOST_SEARCHED), nothing)
        figures, found = oddfigures.watch_figures(log.running.figures, number, every)
    log.running.note_figures(figures)
    for odd in found:
        if any((one.attempt, one.kind) == (number, odd.kind) and (odd.kind == oddfigures.NAN or one.step >= odd.step)
               for one in log.journal.state.odd):
            continue
        event = log.journal.event("odd_figure", attempt=number, kind=odd.kind, step=odd.step, value=str(odd.value),
                                   usual=odd.usual, before=odd.before, line=mask(odd.text)[:MOST_TEXT])
        log.journal.record(event)
        is_end = odd.kind == oddfigures.NAN and log.here.plan.on_nan != "report"
        then = "" if is_end else "; nothing is ended"
        log.say(f"!!! {oddfigures.tell_odd(odd.kind, odd.value, odd.usual)}, since step {odd.step}{then}")
