"""Tells people what the journal has for them (notify), beside the loop.

No restart waits for it: a message never begins between the end of an attempt and the next launch, and is sent by
children. What was told is an event of the journal, so that the next supervisor does not tell it again. If a supervisor
dies before it has written that, the message is sent twice.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from safelaunch.decide.facts.phase import Phase
from safelaunch.notify.message import compose
from safelaunch.notify.targets import NotifyTarget, targets
from safelaunch.run.notices import Notice
from safelaunch.run.noticewords import due
from safelaunch.run.plan import Plan
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.ports import Here, Say
from safelaunch.supervisor.state.standbys import Standbys
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

TELLS_IN = (Phase.LIVE, Phase.PRESERVING, Phase.HANDING_OVER, Phase.FINISHING)
POLL_S = 0.1
RETRY_S = (30.0, 300.0)   # before the second and third try
LAST_WORDS_S = 25.0       # for which the run's end waits: a delivery's deadline and a moment
TERM_S = 5.0              # the same where Slurm ends the job
HELD_TERM_S = 20.0        # ... and holds the next one: nobody else would tell, and KillWait is 30 s


def follow(
    here: Here, clock: Clock, journal: LeaderJournal, course: Course, standbys: Standbys, tasks: BackgroundTasks,
    say: Say
) -> None:
    """Begin to tell what waits. Where Slurm ends the job the standby is silent because it ends, too."""
    may_lead = not standbys.is_contested or course.ending is not None
    if _targets(here.plan) and course.phase in TELLS_IN and may_lead and (
            due(journal.state.notices, here.plan.notify.when, clock.now)):
        tasks.begin(Work.NOTIFY, _tell(here, clock, journal, course, say))


def last_words(plan: Plan, clock: Clock, journal: LeaderJournal, course: Course, after_term_s: float = TERM_S) -> Step:
    """Wait until the run's end, or its hold, is told, for a short time."""
    until_s = clock.now_s + LAST_WORDS_S
    while _targets(plan) and due(journal.state.notices, plan.notify.when, clock.now) and clock.now_s < until_s:
        if course.term_s is not None:
            until_s = min(until_s, course.term_s + after_term_s)
        yield POLL_S


def _targets(plan: Plan) -> tuple[NotifyTarget, ...]:
    return targets(plan.notify.to, plan.notify.command)


def _pause(clock: Clock, journal: LeaderJournal, course: Course, length_s: float) -> Step:
    """Wait for the next try; the run's end is told at once."""
    until_s = clock.now_s + length_s
    while journal.state.ended is None and (clock.now_s < until_s or course.phase not in TELLS_IN):
        yield 1.0


def _tell(here: Here, clock: Clock, journal: LeaderJournal, course: Course, say: Say) -> Step:
    """One message, tried again while no target takes it. What comes meanwhile goes with the next try."""
    for pause_s in (*RETRY_S, None):
        told = due(journal.state.notices, here.plan.notify.when, clock.now)
        if not told:
            return
        results = yield from _send(here, journal, told)
        failed = [label for label, trouble in results.items() if trouble]
        for label in failed:
            if label not in journal.state.notices.failing and pause_s == RETRY_S[0]:
                say(f"a message to {label} was not sent: {results[label]}")
        sent = [label for label in results if label not in failed]
        if sent or pause_s is None or journal.state.ended is not None:
            break
        yield from _pause(clock, journal, course, pause_s)
    journal.record(journal.event("notified", keys=[one.key for one in told], sent=sent, failed=failed))


def _send(
    here: Here, journal: LeaderJournal, told: Sequence[Notice]
) -> Generator[float, Result | None, dict[str, str]]:
    """For each target why it did not take the message; "" = it did."""
    message = compose(here.plan.name, str(here.run_dir), journal.state, told)
    delivery = here.world.deliver(_targets(here.plan), message, here.plan.notify.smtp, here.job.env)
    while (results := delivery.poll()) is None:
        yield POLL_S
    return results
