"""Handing the run over to its next job, in each of the ways of slurm.via, once nothing of the last attempt is left."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple

from safelaunch.base.endings import JobEnd
from safelaunch.decide.ends import passing
from safelaunch.decide.ends.passing import SETTLE_S
from safelaunch.decide.facts.actions import HandOver
from safelaunch.decide.jobs.cancel import Fate
from safelaunch.guard.io.job import Allocation
from safelaunch.node import fresh
from safelaunch.run import acts
from safelaunch.run.acts import ActOutcome
from safelaunch.slurm import nodefold
from safelaunch.slurm import via as ways
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result, outcome, said
from safelaunch.supervisor import observe
from safelaunch.supervisor.attempt.closing import DRAIN_S
from safelaunch.supervisor.common import slurmends
from safelaunch.supervisor.jobs.nextjob import (
    Acting,
    affordable,
    cancel_job,
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
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nextjob import NextJob, NextSlot, Queueing
from safelaunch.supervisor.state.ports import Say
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.suspicion import Suspicions
from safelaunch.supervisor.state.tasks import Step, Work

AGAIN_S, GONE_S = 5.0, 5.0   # GONE_S: for what is under way where nothing can be brought to a run folder that is gone
CHANGE_TRIES = 5   # of a job that Slurm is ending: its TERM can kill a command

# Whether the next job has the run; None = not yet: the next try follows the state of that time.
Passing = Generator[Command | float, Result | None, bool | None]


class Handover(NamedTuple):
    """The run is passed on. `read_requests`: what people ask meanwhile; `show_end`: this one's last heartbeat."""

    queueing: Queueing
    suspects: Suspicions
    reach: Reach
    read_requests: Callable[[], bool]
    show_end: Callable[[], None]

    @property
    def slot(self) -> NextSlot:
        return self.queueing.slot

    def drain(self) -> Step:
        """Wait for the last lines of log and journal, DRAIN_S at most where the folder is frozen or takes no writes."""
        slot, clock, files, course, tasks = self.queueing
        folder = files.state
        end_s = clock.now_s + (GONE_S if folder.gone is not None else DRAIN_S if course.ending is None else 20.0)
        while clock.now_s < end_s and (tasks.has_unfinished_work or not folder.shared.is_delivered):
            yield 0.05
        if clock.now_s >= end_s and folder.gone is None:
            (slot.here.local / "keep").touch()


def handover_of(lead: Leader) -> Handover:
    """For this leader's run."""
    return Handover(lead.queueing, lead.suspects, lead.reach, partial(observe.read_requests, lead),
                    partial(observe.publish_heartbeat, lead, is_over=True))


def pass_on(handover: Handover, action: HandOver) -> Acting:
    """True once the next job has the run, False where a person has cancelled it."""
    (here, journal, next_job, say), clock, _, course, tasks = handover.queueing
    if not is_queueing(tasks):
        tasks.cancel(Work.QUEUE_NEXT)   # it may sleep for an hour after a refusal
    # (simulated: test_found "a cancel that reaches the ranks before the supervisor, of a run on hold, is not undone by
    # resume")
    # (simulated: test_found "a cancel before a takeover reaches no new leader")
    if action.held or here.took_over is not None:
        yield from observe.check_job_end(here, clock, course, next_job, say)
    while True:
        while tasks.is_running(Work.QUEUE_NEXT) or (course.term_s is not None and course.ending is None):
            yield 0.1
        # (simulated: test_found "a person's cancel while the run is being handed over is final")
        if course.ending == JobEnd.CANCELLED:
            return False
        passed = yield from _WAYS[passing.way_of(journal.state)](handover, action)
        if passed is not None:
            return passed


def announce_end(handover: Handover, is_now: bool = True) -> Step:
    """Announce this job's cancel before a next job can start and take it for a person's. `is_now`: nothing is left to
    do. After a takeover no script may be left to end the job (measured), or an old batch host's ends it (simulated:
    test_found "a job does not end by its old batch host before the next one is submitted").
    """
    (here, journal, next_job, say), _, _, course, _ = handover.queueing
    if here.took_over is None or here.job.is_local:
        return
    if is_now:
        handover.show_end()   # the other supervisors must not take this for a death
    while course.end_act is None and course.ending is None and course.term_s is None:
        claim = journal.claim("end the job")
        if claim:
            act = acts.perform(journal, "cancel", claim, _end_own_job(here.job, next_job, course, say), job=here.job.id)
            course.announce_end(act)
            next(act)
            # who sees the cancel in squeue must be able to read who did it
            yield from handover.drain()
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


def _to_successor(handover: Handover, action: HandOver) -> Passing:
    """The job queued behind this one goes on as soon as this one has ended."""
    _, journal, next_job, say = slot = handover.slot
    job, first = journal.state.successor, passing.behind(journal.state)
    if first is passing.Behind.LOOK:
        # a person may have taken it back
        if (found := (yield from find_queued(handover.slot))) is None:
            yield AGAIN_S
        return False if found is False else None
    if first is passing.Behind.QUEUE or job is None:
        handover.queueing.tasks.begin(Work.QUEUE_NEXT, queue_successor(handover.queueing, is_held=action.held))
        return None
    fate = yield from find_fate(handover.queueing.clock, journal, next_job, job)
    if fate is Fate.CANCELLED:
        note_cancelled(slot, job)
        return None
    if fate is Fate.LOST:
        note_lost(journal, job)
        return None
    if fate is Fate.STARTED:   # and leads the run
        _note_passed(journal, job, action)
        return True
    result, action = yield from change_next(slot, handover.suspects, handover.reach, job, action)
    if result is not None and not result.is_ok:
        say(f"the successor could not be changed: {said(result)}")
        is_stuck = next_job.successor.is_unchangeable(result, journal.state.successor_excludes)
        change = passing.after_refused(is_stuck=is_stuck, is_hopeless=is_stuck or _note_refusal(next_job, result))
        if change is passing.Change.REPLACE:
            yield from _replace(journal, next_job, job)
        elif change is passing.Change.AGAIN:
            yield AGAIN_S
        if change is not passing.Change.DONE:
            return None
    if action.held:
        yield from _hold(handover, job)
    _note_passed(journal, job, action)
    return True


def _replace(journal: LeaderJournal, next_job: NextJob, job: str) -> Step:
    """Cancel a next job that excludes a node which has left the cluster, so that another one is queued."""
    if (yield from cancel_job(journal, next_job, job, "replace the next job")):
        note_lost(journal, job, "it excluded a node that is no more, and Slurm changes no such job")
    else:
        yield AGAIN_S


def _hold(handover: Handover, job: str) -> Step:
    """Hold the next job in the queue until a person resumes the run, which may have happened, or happen meanwhile."""
    here, _, next_job, say = handover.slot
    # (simulated: test_found "a job that is held once the hold was lifted stays not held where its supervisor dies")
    while _ask_hold(handover):
        result = yield next_job.successor.run(slurm.hold(job))
        if result is not None and result.is_ok:
            break
        say(f"job {job} could not be held: {said(result)}")
        if _note_refusal(next_job, result):   # its supervisor sees the hold
            return
        yield AGAIN_S
    # `resume` deletes the file, then looks for held jobs: it finds whatever this supervisor holds after this check.
    if not _ask_hold(handover):
        yield next_job.successor.run(slurm.release(job))
        return
    say(f"job {job} waits, held, for: safelaunch resume {here.run_dir}")


def _ask_hold(handover: Handover) -> bool:
    """Whether a person still holds the run, by the folder's last answer."""
    # (simulated: test_found "a hold that is taken back, and that a client remembers, keeps no job back for ever")
    files, run_dir = handover.queueing.files, handover.slot.here.run_dir
    files.ask(lambda: fresh.see(f"{run_dir}/control"), 1.0)
    handover.read_requests()
    return any(request.name == "hold" for request in files.state.requests)


def _note_refusal(next_job: NextJob, result: Result | None) -> bool:
    """Whether to stop changing the next job: scontrol is missing, or has refused again and again."""
    if result is not None and not result.is_unknown:
        next_job.note_refused_change()
    return result is not None and passing.is_hopeless(
        next_job.refused_changes, passing.MOST_CHANGES_REFUSED, is_missing=result.is_missing)


def _note_passed(journal: LeaderJournal, job: str | None, action: HandOver) -> None:
    journal.record(journal.event("handed_over", job=job, exclude=list(action.exclude), why=action.why))


# --- where nothing can wait behind this job -----------------------------------------------------------------------


def _resubmit(handover: Handover, action: HandOver) -> Passing:
    """sbatch without a dependency: the next job may start before this one has ended. Nothing more is done here then."""
    here, journal, next_job, say = handover.slot
    course = handover.queueing.course
    if course.ending is None:
        # so that this job's last heartbeat does not overwrite the next one's first
        yield from handover.drain()
    clear_looks = submissions = refusals = 0
    while True:
        found = yield from find_queued(handover.slot)
        if passing.is_settled(journal.state, course.ending, is_queued=found):
            return None
        clear_looks += found is not None
        if passing.may_submit_alone(clear_looks, submissions):
            yield from announce_end(handover, is_now=False)
            result = yield from _submit_now(handover, action)
            if journal.state.successor is not None:
                _note_passed(journal, journal.state.successor, HandOver(journal.state.successor_excludes, action.why))
                return True
            clear_looks, submissions, refusals = 0, submissions + 1, refusals + (not result.is_unknown)
            is_hopeless = refusals >= passing.MOST_REFUSALS
            other = (yield from way_without_sbatch(here, next_job)) if is_hopeless else None
            if other is not None:
                choose(journal, say, other, f"sbatch says: {said(result)}")
                return None
        yield SETTLE_S


def _submit_now(handover: Handover, action: HandOver) -> Generator[Command | float, Result | None, Result]:
    """sbatch of the next job: announced, done, journalled."""
    _, journal, next_job, say = handover.slot
    claim = yield from acts.wait_for_claim(
        lambda: next_job.check_folder() and journal.claim("submit the next job"), 1.0)
    result, job = yield from acts.perform(journal, "queue_successor", claim, _sbatch(handover, action))
    if job is None:
        say(f"the next job could not be submitted: {said(result)}")
    elif action.held:
        yield from _hold(handover, job)
    return result


def _sbatch(
    handover: Handover, action: HandOver
) -> Generator[Command | float, Result | None, ActOutcome[tuple[Result, str | None]]]:
    here, journal, next_job, _ = slot = handover.slot
    exclude = yield from affordable(handover.suspects, action.exclude)
    result, exclude = yield from submit_next(slot, exclude, is_behind=False, is_held=action.held)
    if (job := next_job.successor.job_from(result)) is None:
        return ActOutcome(None if result.is_unknown else False, (result, None))
    return ActOutcome(True, (result, job), then=(queued(here.job, journal, job, exclude),))


def _requeue(handover: Handover, action: HandOver) -> Passing:
    """Requeue this job, without the nodes that are bad now.

    Not requeuehold: if the supervisor dies, the job starts by itself after 121 s. Measured (22.05): while the job is
    COMPLETING, `scontrol update` of ExcNodeList and uhold work already (see endings.start_soon).
    """
    (here, journal, next_job, say), clock, _, course, _ = handover.queueing
    # (simulated: test_found "a cancelled job of which no line was written is not requeued")
    step = passing.before_requeue(course.ending)
    if step is passing.Requeue.TO_WATCH:
        choose(journal, say, ways.WATCH,
               "nothing tells why this job ends, and one that a person cancels must not come back")
        return None
    if step is passing.Requeue.CHECK:
        yield from handover.drain()
        # Else an earlier supervisor has, which died.
        if not any(intent.act == "requeue" for intent in journal.state.intents):
            yield from observe.check_job_end(here, clock, course, next_job, say)
        # (simulated: test_found "a cancel that a cut cable kept from the supervisor is not undone by its requeue")
        if not passing.is_requeue_due(course.ending, has_term=course.term_s is not None):
            return None
    claim = yield from acts.wait_for_claim(partial(journal.claim, "requeue this job"), 1.0)
    refused = yield from acts.perform(journal, "requeue", claim, _ask_to_requeue(here.job, next_job),
                                      job=here.job.id, exclude=list(action.exclude))
    if refused is None:
        yield from slurmends.learn_why_it_ends(course)   # the TERM of the requeue, or of a cancel just before it
    # (simulated: test_found "a scancel a moment before a job is requeued is final")
    step = passing.after_requeue(course.ending, refused)
    if step is passing.Requeue.TO_WATCH:
        choose(journal, say, ways.WATCH, f"this job could not be requeued: {refused}")
        return None
    if step is passing.Requeue.TAKE_BACK:
        yield from _take_back(here.job, journal, next_job)
        return False
    course.note_ending(course.ending or JobEnd.REQUEUED)   # the TERM that comes now is ours
    _note_passed(journal, here.job.id, action)
    if here.took_over is not None:
        handover.show_end()   # the other supervisors must not take this for a death
    # It was not submitted held, and a release would send it to the queue's end.
    if action.held and _ask_hold(handover):
        yield from _hold(handover, here.job.id)
    exclude = yield from affordable(handover.suspects, action.exclude)
    yield from _keep_out(handover.slot, exclude)
    return True


def _take_back(job: Allocation, journal: LeaderJournal, next_job: NextJob) -> Step:
    """Cancel this job, which was requeued just after a person had cancelled it."""
    for _ in range(CHANGE_TRIES):
        if (yield from cancel_job(journal, next_job, job.id, "take this job back", 1.0)):
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


def _keep_out(slot: NextSlot, exclude: tuple[str, ...]) -> Step:
    """Keep the requeued job from bad nodes, and check that."""
    here, _, next_job, say = slot
    for _ in range(CHANGE_TRIES if exclude else 0):
        prepare = partial(next_job.successor.prepare, here.job.id, exclude)
        yield from with_known_nodes(slot, exclude, prepare)
        looked = yield next_job.successor.run(slurm.squeue_watch([here.plan.job_name]))
        job = None if looked is None else next_job.successor.own(looked)
        if job is not None and next_job.successor.has_excluded(job, exclude):
            return
        yield 0.5
    if exclude:
        say(f"job {here.job.id} could not be kept from {nodefold.fold(exclude)}: whoever leads it hands over again")


def _to_watch(handover: Handover, action: HandOver) -> Passing:
    """A watch queues the next job, or has done so."""
    _, journal, _, say = handover.slot
    course = handover.queueing.course
    if course.ending is None:
        yield from handover.drain()
    for _ in range(2):
        found = yield from find_queued(handover.slot)
        if passing.is_settled(journal.state, course.ending, is_queued=found):
            return None
        if found is False:
            break
        yield SETTLE_S
    journal.record(journal.event("need_successor", exclude=list(action.exclude), why=action.why))
    say("the next job is to be queued from outside: safelaunch watch --once, on a host that has sbatch")
    _note_passed(journal, None, action)
    return True


_WAYS = {ways.SUCCESSOR: _to_successor, ways.RESUBMIT: _resubmit, ways.REQUEUE: _requeue, ways.WATCH: _to_watch}
