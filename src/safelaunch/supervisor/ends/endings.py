"""The ends: handover to the successor, the preserved site, and the end of the run."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial

from safelaunch.base.io.localtime import moment
from safelaunch.decide.ends import passing
from safelaunch.decide.facts.actions import Finish, HandOver, Preserve, Wait
from safelaunch.decide.nodes.nodes import preserved
from safelaunch.guard.io.job import Allocation
from safelaunch.run import acts
from safelaunch.run.acts import ActOutcome
from safelaunch.run.io import runfolder
from safelaunch.slurm import nodefold
from safelaunch.slurm import via as ways
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result, outcome, said
from safelaunch.supervisor.common import metering, notifying, slurmends
from safelaunch.supervisor.ends import handover
from safelaunch.supervisor.ends.handover import Handover
from safelaunch.supervisor.jobs import nextjob
from safelaunch.supervisor.jobs.following import tell_followers
from safelaunch.supervisor.leader import HANDED_OVER, Leader
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.folder import FolderState
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nextjob import NextJob
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.standbys import Standbys
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

CANCEL_PATIENCE_S = 20.0   # below KillWait (30 s): a cancelled job has no more
AWAY_PATIENCE_S, AWAY_LOOK_S = 900.0, 20.0
EXTENDED_S = 0.5           # less is rounding of a file's time
START_IN_S = 8


def preserve(
    here: Here, clock: Clock, journal: LeaderJournal, tasks: BackgroundTasks, say: Say, row: str,
    action: Preserve
) -> None:
    """Keep the site for people; the other nodes are given back to Slurm."""
    nodes = preserved(here.plan, journal.state, here.job.nodes, here.job.host)
    journal.record(journal.event("preserved", until=action.until, nodes=list(nodes)))
    until = moment(action.until, clock.now)
    say.decision(row,
                 f"{action.why}. The site ({nodefold.fold(nodes)}) is preserved until {until}: look with "
                 f"`safelaunch shell {here.run_dir} NODE`, give back with `safelaunch release {here.run_dir}`")
    if len(nodes) < len(here.job.nodes) and here.plan.cluster != ways.HERE:   # those are the shell's, too
        tasks.begin(Work.SHRINK, _give_back(here, journal, say, nodes))


def keep_for_longer(clock: Clock, journal: LeaderJournal, folder: FolderState, say: Say, action: Wait) -> None:
    """Journal that a person has extended the time for which the site is kept; status and people read that."""
    until = journal.state.preserving_until
    if until is None or action.until <= until + EXTENDED_S:
        return
    who = next((request.who for request in folder.requests if request.name == "extend"), "somebody")
    journal.record(journal.event("preserved", until=action.until, why=f"{who} extended it"))
    say(f"{who} extended it: the site is preserved until {moment(action.until, clock.now)}")


def put_on_hold(
    here: Here, journal: LeaderJournal, files: FolderPort, say: Say, why: str, job: str | None = None
) -> None:
    """Hold the run until a person lets it go on; `job`: the one that it is about, by default this one."""
    files.ask_patiently(lambda: runfolder.request(here.run_dir, "hold", why))
    journal.record(journal.event("held", job=job or here.job.id, why=why, lives=len(journal.state.lives)))
    say(f"the run is put on hold: {why}. safelaunch resume {here.run_dir} goes on, safelaunch stop {here.run_dir} ends "
        "the run")


def _give_back(here: Here, journal: LeaderJournal, say: Say, kept: tuple[str, ...]) -> Step:
    """Give the other nodes back to Slurm; that takes 13 ms, and cannot include the batch host."""
    claim = journal.claim("give nodes back")
    if claim == 0:
        return
    yield from acts.perform(journal, "shrink", claim, _shrink(here, say, kept), nodes=list(kept))


def _shrink(here: Here, say: Say, kept: tuple[str, ...]) -> Generator[Command, Result | None, ActOutcome[None]]:
    result = yield here.world.command(slurm.update_job(here.job.id, NodeList=nodefold.fold(kept)), here.job.env)
    done = result is not None and result.is_ok
    if not done and result is not None:
        say(f"the other nodes could not be given back: {result.stderr.strip()[:200]}")
    return ActOutcome(done, None)


def hand_over(lead: Leader, row: str, action: HandOver) -> Step:
    """Leave the run to its next job, which must be able to start and must not use the excluded nodes."""
    chosen = passing.begin(action, lead.plan)
    if isinstance(chosen, Finish):
        yield from finish(lead, row, chosen)
        return
    lead.say.decision(row, f"handing over to the next job: {action.why}")
    claim = yield from acts.wait_for_claim(partial(lead.claim, "hand over"), 1.0)
    passed = handover.handover_of(lead)
    exclude = yield from nextjob.affordable(lead.suspects, action.exclude)
    action = replace(action, exclude=exclude)
    if not (yield from acts.perform(lead.journal, "hand_over", claim, _pass_on(passed, action), job=lead.job.id,
                                    exclude=list(action.exclude))):
        yield from finish(lead, row, passing.end_of_taken_back(lead.course.ending))
        return
    yield from _hold_back(lead.job, lead.journal, lead.next, lead.say, action.pause_s)
    if action.held and lead.state.held is not None:   # no supervisor comes before a person does
        yield from notifying.last_words(lead.plan, lead.clock, lead.journal, lead.course, notifying.HELD_TERM_S)
    # The last figures until the next job starts must not say that it runs.
    metering.write(lead.here, lead.clock, lead.journal, lead.files, lead.running)
    if lead.reach.lost:
        yield from tell_followers(lead.here, lead.journal, lead.folder, lead.say, None)
    yield from passed.drain()
    yield from handover.announce_end(passed)
    yield from lead.course.end_act or ()
    yield from start_soon(lead.job, lead.journal, lead.next, lead.say)
    lead.course.end(HANDED_OVER)


def _hold_back(own_job: Allocation, journal: LeaderJournal, next_job: NextJob, say: Say, pause_s: float) -> Step:
    """Let the next job wait where the run is preempted again and again; a requeued one starts as Slurm has it."""
    job = journal.state.successor
    if not pause_s or job is None or job == own_job.id:
        return
    result = yield next_job.successor.run(slurm.update_job(job, StartTime=f"now+{int(pause_s)}"))
    say(f"the last jobs ended soon after their start: job {job} waits for {int(pause_s)} s"
        if outcome(result) else f"job {job} could not be held back: {said(result)}")


def start_soon(job: Allocation, journal: LeaderJournal, next_job: NextJob, say: Say) -> Step:
    """Let this requeued job start when this supervisor has gone, not two minutes later.

    When it stops completing, Slurm sets StartTime to 121 s from then, unless it is already in the future (job_mgr.c,
    batch_requeue_fini). With "now" it fails twice, so it is "now+8" (both measured, 22.05). While the job completes it
    has no effect. Right after that slurmd says "already killed, do not launch batch job", and the job is FAILED.
    """
    if journal.state.successor != job.id:
        return
    for _ in range(handover.CHANGE_TRIES):
        result = yield next_job.successor.run(slurm.update_job(job.id, StartTime=f"now+{START_IN_S}"))
        if result is not None and result.is_ok:
            say(f"job {job.id} is back in the queue, and may start in {START_IN_S} s")
            return
        yield 0.5
    say(f"job {job.id} is back in the queue. Slurm lets it wait for two minutes; to start it at once, once "
        f"it is pending: scontrol update JobId={job.id} StartTime=now+3")


def _pass_on(passed: Handover, action: HandOver) -> Generator[Command | float, Result | None, ActOutcome[bool]]:
    """Whether the next job has the run; False = a person has cancelled it, or this job."""
    course = passed.queueing.course
    is_passed = yield from handover.pass_on(passed, action)
    yield from slurmends.learn_why_it_ends(course)
    if passing.is_taken_back(is_passed=is_passed, ending=course.ending):
        return ActOutcome(False, False, {"why": passing.end_of_taken_back(course.ending).why})
    return ActOutcome(True, True, {"job": passed.slot.here.job.id, "ending": course.ending})


def finish(lead: Leader, row: str, action: Finish) -> Step:
    """End the run: first the journal, then the successor, then the log's last lines."""
    if lead.state.preserving_until is not None:
        lead.journal.record(lead.journal.event("released",
                                               by=", ".join(request.who for request in lead.folder.requests)))
    if lead.state.ended is None and (yield from _write_end(lead.clock, lead.journal, lead.standbys, action)):
        metering.write(lead.here, lead.clock, lead.journal, lead.files, lead.running)
    ended, was_gone = f"the run has ended: {action.how}: {action.why}", lead.folder.gone is not None
    lead.say.decision(row, ended)
    yield from _empty_queue(lead.clock, lead.journal, lead.files, lead.tasks, lead.course, lead.next)
    yield from tell_followers(lead.here, lead.journal, lead.folder, lead.say, None)
    yield from notifying.last_words(lead.plan, lead.clock, lead.journal, lead.course)
    leaving = handover.handover_of(lead)
    yield from leaving.drain()
    yield from handover.announce_end(leaving)
    yield from lead.course.end_act or ()
    if lead.folder.gone is not None and not was_gone:
        lead.say(ended)   # the other line went with the folder
    lead.course.end(action.exit_code)


def _write_end(
    clock: Clock, journal: LeaderJournal, standbys: Standbys, action: Finish
) -> Generator[float, Result | None, bool]:
    """Write the run's end down, under a claim where the folder answers in time; whether it is written."""
    patience_s = clock.now_s + CANCEL_PATIENCE_S
    while (claim := journal.claim("end the run")) == 0 and clock.now_s < patience_s:
        yield 1.0
    may = passing.may_write_end(has_claim=claim != 0, is_contested=standbys.is_contested)
    if may:
        journal.record(journal.event(action.how, exit_code=action.exit_code, why=action.why))
    return may


def _empty_queue(
    clock: Clock, journal: LeaderJournal, files: FolderPort, tasks: BackgroundTasks, course: Course, next_job: NextJob
) -> Step:
    """Take the run's next job out of the queue. One that is left and held never starts: a watch cancels it."""
    patience_s, away_s = clock.now_s + CANCEL_PATIENCE_S, clock.now_s + AWAY_PATIENCE_S
    while nextjob.is_queueing(tasks) and journal.state.successor is None and clock.now_s < patience_s:
        yield 0.1
    tasks.cancel(Work.QUEUE_NEXT)
    refused = 0
    while (is_empty := (yield from _cancel_waiting(journal, next_job))) is not True:
        refused += is_empty is False
        is_ending = course.ending is not None or course.term_s is not None
        is_late = clock.now_s >= patience_s and not files.state.missing.looks   # it is known soon whether that is gone
        if passing.may_leave_queued(is_empty, refused, is_ending=is_ending, is_late=is_late,
                                    is_very_late=clock.now_s >= away_s):
            return
        yield 3.0 if clock.now_s < patience_s else AWAY_LOOK_S


def _cancel_waiting(journal: LeaderJournal, next_job: NextJob) -> Generator[Command, Result | None, bool | None]:
    """True once no job of this run is queued; None = Slurm does not answer."""
    if journal.state.successor is None and journal.state.via != ways.WATCH:
        return True
    looked = yield next_job.successor.query_all()
    if looked is None or looked.is_unknown:
        return None
    jobs = next_job.successor.waiting(looked)
    for job in jobs or ():
        claim = journal.claim("cancel the successor")
        if claim == 0:
            return False
        done = yield from acts.perform(journal, "cancel", claim, nextjob.scancel(next_job, job), job=job)
        if not done:
            return done
    return jobs is not None
