"""Handing the run over to its next job, in each of the ways of slurm.via, once nothing of the last attempt is left."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from pathlib import Path

from safelaunch.base.endings import JobEnd
from safelaunch.decide.ends import passing
from safelaunch.decide.ends.passing import SETTLE_S
from safelaunch.decide.facts.actions import HandOver
from safelaunch.decide.jobs.cancel import Fate
from safelaunch.guard.io.job import Allocation
from safelaunch.node import fresh
from safelaunch.run import acts
from safelaunch.run.acts import ActOutcome
from safelaunch.run.plan import Plan
from safelaunch.slurm import jobstates, nodefold
from safelaunch.slurm import via as ways
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result, outcome, said
from safelaunch.supervisor import observe
from safelaunch.supervisor.attempt.closing import DRAIN_S
from safelaunch.supervisor.jobs.nextjob import (
    affordable,
    change_next,
    choose,
    find_fate,
    find_queued,
    is_queueing,
    note_cancelled,
    note_lost,
    queue_successor,
    queued,
    submit_next,
    way_without_sbatch,
    with_known_nodes,
)
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.folder import FolderState
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nextjob import NextJob
from safelaunch.supervisor.state.ports import Say
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

AGAIN_S, GONE_S = 5.0, 5.0   # GONE_S: for what is under way where nothing can be brought to a run folder that is gone
OWN_CANCEL_S = 5.0   # for a live supervisor to cancel its job itself, once the next one is queued
CHANGE_TRIES = 5   # of a job that Slurm is ending: its TERM can kill a command
# From this supervisor's last act to the start of its requeued job; the rest takes a second on an idle node.

Acting = Generator[Command | float, Result | None, bool]
# Whether the next job has the run; None = not yet: the next try follows the state of that time.
Passing = Generator[Command | float, Result | None, bool | None]


def pass_on(lead: Leader, action: HandOver) -> Acting:
    """True once the next job has the run, False where a person has cancelled it."""
    if not is_queueing(lead.tasks):
        lead.tasks.cancel(Work.QUEUE_NEXT)   # it may sleep for an hour after a refusal
    # (simulated: test_found "a cancel that reaches the ranks before the supervisor, of a run on hold, is not undone by
    # resume")
    # (simulated: test_found "a cancel before a takeover reaches no new leader")
    if action.held or lead.here.took_over is not None:
        yield from observe.check_job_end(lead.here, lead.clock, lead.course, lead.next, lead.say)
    while True:
        while lead.tasks.is_running(Work.QUEUE_NEXT) or (lead.course.term_s is not None and lead.ending is None):
            yield 0.1
        # (simulated: test_found "a person's cancel while the run is being handed over is final")
        if lead.ending == JobEnd.CANCELLED:
            return False
        passed = yield from _WAYS[passing.way_of(lead.state)](lead, action)
        if passed is not None:
            return passed


def learn_why_it_ends(course: Course) -> Step:
    """Wait until it is known why a TERM has come, if one has: it may be a person's cancel."""
    while course.term_s is not None and course.ending is None:
        yield 0.1


def drain(local: Path, clock: Clock, folder: FolderState, tasks: BackgroundTasks, course: Course) -> Step:
    """Wait for the last lines of log and journal, DRAIN_S at most where the folder is frozen or takes no writes."""
    end_s = clock.now_s + (GONE_S if folder.gone is not None else DRAIN_S if course.ending is None else 20.0)
    while clock.now_s < end_s and (tasks.has_unfinished_work or not folder.shared.is_delivered):
        yield 0.05
    if clock.now_s >= end_s and folder.gone is None:
        (local / "keep").touch()


def announce_end(lead: Leader, is_now: bool = True) -> Step:
    """Announce this job's cancel before a next job can start and take it for a person's. `is_now`: nothing is left to
    do. After a takeover no script may be left to end the job (measured), or an old batch host's ends it (simulated:
    test_found "a job does not end by its old batch host before the next one is submitted").
    """
    if lead.here.took_over is None or lead.job.is_local:
        return
    if is_now:
        observe.publish_heartbeat(lead, is_over=True)   # the other supervisors must not take this for a death
    while lead.course.end_act is None and lead.ending is None and lead.course.term_s is None:
        claim = lead.claim("end the job")
        if claim:
            act = acts.perform(lead.journal, "cancel", claim, _end_own_job(lead.job, lead.next, lead.course, lead.say),
                               job=lead.job.id)
            lead.course.announce_end(act)
            next(act)
            # who sees the cancel in squeue must be able to read who did it
            yield from drain(lead.local, lead.clock, lead.folder, lead.tasks, lead.course)
            return
        yield 2.0


def _end_own_job(
    job: Allocation, next_job: NextJob, course: Course, say: Say
) -> Generator[Command | float, Result | None, ActOutcome[None]]:
    """Cancel this job when all else is done. If a person cancels it first, that remains a person's cancel."""
    yield 0.0   # announced; endings.finish continues here
    done: bool | None = False
    while course.ending is None and course.term_s is None:
        say("this job has lost its batch host and does not end by itself: cancelling it")
        done = outcome((yield next_job.successor.run(slurm.scancel(job.id))))
        if done is not None:   # refused: Slurm no longer knows the job
            break
        yield 5.0
    return ActOutcome(done, None)


def end_announced(journal: LeaderJournal, next_job: NextJob, job: str) -> Step:
    """Cancel the job before this one, if its supervisor died or stood still after it announced that, or during a
    handover: it may have no script to end it (simulated: test_found "a job whose leader stood still before it could
    cancel it is ended by the next one's").
    """
    state: str | None = None
    for _ in range(CHANGE_TRIES):
        yield OWN_CANCEL_S
        looked = yield next_job.successor.run(slurm.squeue_job(job))
        state = None if looked is None else next_job.successor.state_of(looked, job)
        if state is not None:
            break
    if state != jobstates.RUNNING:
        return
    yield from _cancel(journal, next_job, job, "end the job before")


def _cancel(journal: LeaderJournal, next_job: NextJob, job: str, what: str, every_s: float = AGAIN_S) -> Acting:
    """Cancel a job of the run; whether Slurm has accepted that."""
    claim = yield from acts.wait_for_claim(partial(journal.claim, what), every_s)
    return (yield from acts.perform(journal, "cancel", claim, scancel(next_job, job), job=job)) is True


def scancel(next_job: NextJob, job: str) -> Generator[Command, Result | None, ActOutcome[bool | None]]:
    """Whether Slurm has accepted a cancel. Unknown is not no: the end would look like a person's cancel."""
    done = outcome((yield next_job.successor.run(slurm.scancel(job))))
    return ActOutcome(done, done)


def _to_successor(lead: Leader, action: HandOver) -> Passing:
    """The job queued behind this one goes on as soon as this one has ended."""
    job, first = lead.state.successor, passing.behind(lead.state)
    if first is passing.Behind.LOOK:
        # a person may have taken it back
        if (found := (yield from find_queued(lead.job, lead.journal, lead.next, lead.say))) is None:
            yield AGAIN_S
        return False if found is False else None
    if first is passing.Behind.QUEUE or job is None:
        lead.tasks.begin(Work.QUEUE_NEXT, queue_successor(lead, is_held=action.held))
        return None
    fate = yield from find_fate(lead.clock, lead.journal, lead.next, job)
    if fate is Fate.CANCELLED:
        note_cancelled(lead.job, lead.journal, lead.next, lead.say, job)
        return None
    if fate is Fate.LOST:
        note_lost(lead.journal, job)
        return None
    if fate is Fate.STARTED:   # and leads the run
        _note_passed(lead.journal, job, action)
        return True
    result, action = yield from change_next(lead, job, action)
    if result is not None and not result.is_ok:
        lead.say(f"the successor could not be changed: {said(result)}")
        is_stuck = lead.next.successor.is_unchangeable(result, lead.state.successor_excludes)
        change = passing.after_refused(is_stuck=is_stuck, is_hopeless=is_stuck or _note_refusal(lead.next, result))
        if change is passing.Change.REPLACE:
            yield from _replace(lead.journal, lead.next, job)
        elif change is passing.Change.AGAIN:
            yield AGAIN_S
        if change is not passing.Change.DONE:
            return None
    if action.held:
        yield from _hold(lead, job)
    _note_passed(lead.journal, job, action)
    return True


def _replace(journal: LeaderJournal, next_job: NextJob, job: str) -> Step:
    """Cancel a next job that excludes a node which has left the cluster, so that another one is queued."""
    if (yield from _cancel(journal, next_job, job, "replace the next job")):
        note_lost(journal, job, "it excluded a node that is no more, and Slurm changes no such job")
    else:
        yield AGAIN_S


def _hold(lead: Leader, job: str) -> Step:
    """Hold the next job in the queue until a person resumes the run, which may have happened, or happen meanwhile."""
    # (simulated: test_found "a job that is held once the hold was lifted stays not held where its supervisor dies")
    while _ask_hold(lead):
        result = yield lead.next.successor.run(slurm.hold(job))
        if result is not None and result.is_ok:
            break
        lead.say(f"job {job} could not be held: {said(result)}")
        if _note_refusal(lead.next, result):   # its supervisor sees the hold
            return
        yield AGAIN_S
    # `resume` deletes the file, then looks for held jobs: it finds whatever this supervisor holds after this check.
    if not _ask_hold(lead):
        yield lead.next.successor.run(slurm.release(job))
        return
    lead.say(f"job {job} waits, held, for: safelaunch resume {lead.run_dir}")


def _ask_hold(lead: Leader) -> bool:
    """Whether a person still holds the run, by the folder's last answer."""
    # (simulated: test_found "a hold that is taken back, and that a client remembers, keeps no job back for ever")
    lead.files.ask(lambda: fresh.see(f"{lead.run_dir}/control"), 1.0)
    observe.read_requests(lead)
    return any(request.name == "hold" for request in lead.folder.requests)


def _note_refusal(next_job: NextJob, result: Result | None) -> bool:
    """Whether to stop changing the next job: scontrol is missing, or has refused again and again."""
    if result is not None and not result.is_unknown:
        next_job.note_refused_change()
    return result is not None and passing.is_hopeless(
        next_job.refused_changes, passing.MOST_CHANGES_REFUSED, is_missing=result.is_missing)


def _note_passed(journal: LeaderJournal, job: str | None, action: HandOver) -> None:
    journal.record(journal.event("handed_over", job=job, exclude=list(action.exclude), why=action.why))


# --- where nothing can wait behind this job -----------------------------------------------------------------------


def _resubmit(lead: Leader, action: HandOver) -> Passing:
    """sbatch without a dependency: the next job may start before this one has ended. Nothing more is done here then."""
    if lead.ending is None:
        # so that this job's last heartbeat does not overwrite the next one's first
        yield from drain(lead.local, lead.clock, lead.folder, lead.tasks, lead.course)
    clear_looks = submissions = refusals = 0
    while True:
        found = yield from find_queued(lead.job, lead.journal, lead.next, lead.say)
        if passing.is_settled(lead.state, lead.ending, is_queued=found):
            return None
        clear_looks += found is not None
        if passing.may_submit_alone(clear_looks, submissions):
            yield from announce_end(lead, is_now=False)
            result = yield from _submit_now(lead, action)
            if lead.state.successor is not None:
                _note_passed(lead.journal, lead.state.successor, HandOver(lead.state.successor_excludes, action.why))
                return True
            clear_looks, submissions, refusals = 0, submissions + 1, refusals + (not result.is_unknown)
            is_hopeless = refusals >= passing.MOST_REFUSALS
            other = (yield from way_without_sbatch(lead.plan, lead.job, lead.next)) if is_hopeless else None
            if other is not None:
                choose(lead.journal, lead.say, other, f"sbatch says: {said(result)}")
                return None
        yield SETTLE_S


def _submit_now(lead: Leader, action: HandOver) -> Generator[Command | float, Result | None, Result]:
    """sbatch of the next job: announced, done, journalled."""
    claim = yield from acts.wait_for_claim(lambda: lead.check_folder() and lead.claim("submit the next job"), 1.0)
    result, job = yield from acts.perform(lead.journal, "queue_successor", claim, _sbatch(lead, action))
    if job is None:
        lead.say(f"the next job could not be submitted: {said(result)}")
    elif action.held:
        yield from _hold(lead, job)
    return result


def _sbatch(
    lead: Leader, action: HandOver
) -> Generator[Command | float, Result | None, ActOutcome[tuple[Result, str | None]]]:
    exclude = yield from affordable(lead.plan, lead.here, lead.clock, lead.journal, lead.nodes, action.exclude)
    result, exclude = yield from submit_next(
        lead.journal, lead.next, lead.say, exclude, is_behind=False, is_held=action.held)
    if (job := lead.next.successor.job_from(result)) is None:
        return ActOutcome(None if result.is_unknown else False, (result, None))
    return ActOutcome(True, (result, job), then=(queued(lead.job, lead.journal, job, exclude),))


def _requeue(lead: Leader, action: HandOver) -> Passing:
    """Requeue this job, without the nodes that are bad now.

    Not requeuehold: if the supervisor dies, the job starts by itself after 121 s. Measured (22.05): while the job is
    COMPLETING, `scontrol update` of ExcNodeList and uhold work already (see endings.start_soon).
    """
    # (simulated: test_found "a cancelled job of which no line was written is not requeued")
    step = passing.before_requeue(lead.ending)
    if step is passing.Requeue.TO_WATCH:
        choose(lead.journal, lead.say, ways.WATCH,
               "nothing tells why this job ends, and one that a person cancels must not come back")
        return None
    if step is passing.Requeue.CHECK:
        yield from drain(lead.local, lead.clock, lead.folder, lead.tasks, lead.course)
        if not any(intent.act == "requeue" for intent in lead.state.intents):   # else an earlier supervisor, which died
            yield from observe.check_job_end(lead.here, lead.clock, lead.course, lead.next, lead.say)
        # (simulated: test_found "a cancel that a cut cable kept from the supervisor is not undone by its requeue")
        if not passing.is_requeue_due(lead.ending, has_term=lead.course.term_s is not None):
            return None
    claim = yield from acts.wait_for_claim(partial(lead.claim, "requeue this job"), 1.0)
    refused = yield from acts.perform(lead.journal, "requeue", claim, _ask_to_requeue(lead.job, lead.next),
                                      job=lead.job.id, exclude=list(action.exclude))
    if refused is None:
        yield from learn_why_it_ends(lead.course)   # the TERM of the requeue, or of a cancel just before it
    # (simulated: test_found "a scancel a moment before a job is requeued is final")
    step = passing.after_requeue(lead.ending, refused)
    if step is passing.Requeue.TO_WATCH:
        choose(lead.journal, lead.say, ways.WATCH, f"this job could not be requeued: {refused}")
        return None
    if step is passing.Requeue.TAKE_BACK:
        yield from _take_back(lead.job, lead.journal, lead.next)
        return False
    lead.course.note_ending(lead.ending or JobEnd.REQUEUED)   # the TERM that comes now is ours
    _note_passed(lead.journal, lead.job.id, action)
    if lead.here.took_over is not None:
        observe.publish_heartbeat(lead, is_over=True)   # the other supervisors must not take this for a death
    if action.held and _ask_hold(lead):   # it was not submitted held, and a release would send it to the queue's end
        yield from _hold(lead, lead.job.id)
    exclude = yield from affordable(lead.plan, lead.here, lead.clock, lead.journal, lead.nodes, action.exclude)
    yield from _keep_out(lead.plan, lead.job, lead.journal, lead.next, lead.say, exclude)
    return True


def _take_back(job: Allocation, journal: LeaderJournal, next_job: NextJob) -> Step:
    """Cancel this job, which was requeued just after a person had cancelled it."""
    for _ in range(CHANGE_TRIES):
        if (yield from _cancel(journal, next_job, job.id, "take this job back", 1.0)):
            return
        yield 0.5


def _ask_to_requeue(
    job: Allocation, next_job: NextJob
) -> Generator[Command | float, Result | None, ActOutcome[str | None]]:
    """None once Slurm has requeued this job, even if its answer was lost; else its refusal."""
    refusals = 0
    while True:
        yield next_job.successor.run(slurm.update_job(job.id, Requeue="1"))   # every job of ours is --no-requeue
        result = yield next_job.successor.run(slurm.requeue(job.id))
        if result is not None and result.is_ok:
            return ActOutcome(True, None)
        looked = yield next_job.successor.run(slurm.squeue_job(job.id))
        state = None if looked is None else next_job.successor.state_of(looked, job.id)
        if passing.is_requeued(state):
            return ActOutcome(True, None)
        refusals += result is not None and not result.is_unknown
        if result is not None and passing.is_hopeless(
                refusals, passing.MOST_REFUSALS, is_missing=result.is_missing):
            return ActOutcome(False, said(result))
        yield 1.0


def _keep_out(
    plan: Plan, own_job: Allocation, journal: LeaderJournal, next_job: NextJob, say: Say, exclude: tuple[str, ...]
) -> Step:
    """Keep the requeued job from bad nodes, and check that."""
    for _ in range(CHANGE_TRIES if exclude else 0):
        prepare = partial(next_job.successor.prepare, own_job.id, exclude)
        yield from with_known_nodes(journal, next_job, say, exclude, prepare)
        looked = yield next_job.successor.run(slurm.squeue_watch([plan.job_name]))
        job = None if looked is None else next_job.successor.own(looked)
        if job is not None and next_job.successor.has_excluded(job, exclude):
            return
        yield 0.5
    if exclude:
        say(f"job {own_job.id} could not be kept from {nodefold.fold(exclude)}: whoever leads it hands over again")


def _to_watch(lead: Leader, action: HandOver) -> Passing:
    """A watch queues the next job, or has done so."""
    if lead.ending is None:
        yield from drain(lead.local, lead.clock, lead.folder, lead.tasks, lead.course)
    for _ in range(2):
        found = yield from find_queued(lead.job, lead.journal, lead.next, lead.say)
        if passing.is_settled(lead.state, lead.ending, is_queued=found):
            return None
        if found is False:
            break
        yield SETTLE_S
    lead.journal.record(lead.journal.event("need_successor", exclude=list(action.exclude), why=action.why))
    lead.say("the next job is to be queued from outside: safelaunch watch --once, on a host that has sbatch")
    _note_passed(lead.journal, None, action)
    return True


_WAYS = {ways.SUCCESSOR: _to_successor, ways.RESUBMIT: _resubmit, ways.REQUEUE: _requeue, ways.WATCH: _to_watch}
