"""Handing the run over to its next job, by each of the ways of core.via, once nothing of the last attempt is left."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from safelaunch.adapters.slurm import Command, Result, is_done, said
from safelaunch.core import acts, nodefold
from safelaunch.core import via as ways
from safelaunch.core.acts import ActOutcome
from safelaunch.core.decide.actions import HandOver
from safelaunch.core.decide.cancel import Fate
from safelaunch.core.endings import JobEnd
from safelaunch.node import fresh
from safelaunch.supervisor import observe
from safelaunch.supervisor.attempts import DRAIN_S
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.nextjob import (
    SETTLE_S,
    choose,
    find_fate,
    find_queued,
    is_queueing,
    note_cancelled,
    note_lost,
    queue_successor,
    queued,
    way_without_sbatch,
    with_known_nodes,
)
from safelaunch.supervisor.state.tasks import Step, Work

AGAIN_S = 5.0
OWN_CANCEL_S = 5.0   # for a supervisor that lives to cancel its job itself, once the next one is in
REFUSALS = 2       # in a row, of Slurm itself, before another way is taken
CHANGE_TRIES = 5   # of a job that Slurm is ending: a command dies of the TERM that every process of the job gets
# From this supervisor's last act to the start of its requeued job; what is left to do takes a second on an idle node.
START_IN_S = 8

# Whether the run is in the next job's hands; None = not yet: whatever the state says now is tried next.
Passing = Generator[Command | float, Result | None, bool | None]


def pass_on(lead: Leader, action: HandOver) -> Generator[Command | float, Result | None, bool]:
    """True once the next job has the run, False where a person has cancelled it. Slurm ends this job when it must;
    until then a run without a next job is not left alone.
    """
    if not is_queueing(lead):
        lead.tasks.cancel(Work.QUEUE_NEXT)   # it sleeps after a refusal, for an hour perhaps
    if action.held:   # a cancel whose TERM has reached the ranks first would be undone by `resume` (simulated)
        yield from observe.look_whether_it_ends(lead)
    while True:
        while lead.tasks.is_running(Work.QUEUE_NEXT) or (lead.term_s is not None and lead.ending is None):
            yield 0.1
        if lead.ending == JobEnd.CANCELLED:   # meanwhile; a requeued job would undo that (simulated)
            return False
        has_job = lead.state.successor is not None or lead.state.next_cancelled is not None
        via = ways.SUCCESSOR if has_job else lead.state.via or ways.SUCCESSOR
        passed = yield from _WAYS[via](lead, action)
        if passed is not None:
            return passed


def learn_why_it_ends(lead: Leader) -> Step:
    """Wait until it is known why a TERM has come, if one has: a person's cancel, perhaps, in this very moment."""
    while lead.term_s is not None and lead.ending is None:
        yield 0.1


def drain(lead: Leader) -> Step:
    """Wait for the last lines of log and journal; a folder that is frozen, or takes no writes, gets DRAIN_S."""
    end_s = lead.now_s + (DRAIN_S if lead.ending is None else 20.0)
    while lead.now_s < end_s and (lead.tasks.is_saving or not lead.shared.is_delivered):
        yield 0.05
    if lead.now_s >= end_s:
        (lead.local / "keep").touch()


def announce_end(lead: Leader, is_now: bool = True) -> Step:
    """Say that this supervisor is going to cancel its own job, before a next one can start and take that for a person's
    word. After a takeover no script is left whose end would end the job: it would run until its time limit (measured).

    `is_now`: nothing is left to do before. A script can be left after all, of a batch host that was cut off for a
    while: its supervisor ends when it reads that, and the job with it (simulated: before a next one was submitted).
    """
    if lead.took_over is None or lead.job.is_local:
        return
    if is_now:
        observe.publish_pulse(lead, is_over=True)   # the other supervisors must not take this for a death
    while lead.course.end_act is None and lead.ending is None and lead.term_s is None:
        claim = lead.claim("end the job")
        if claim:
            act = acts.perform(lead, "cancel", claim, _end_own_job(lead), job=lead.job.id)
            lead.course.announces_end(act)
            next(act)
            yield from drain(lead)   # who sees the cancel in squeue must be able to read whose it is
            return
        yield 2.0


def _end_own_job(lead: Leader) -> Generator[Command | float, Result | None, ActOutcome[None]]:
    """Cancel this job when all else is done. Where a person's cancel ends it before, that stays the person's word."""
    yield 0.0   # announced; end_job goes on with it
    done: bool | None = False
    while lead.ending is None and lead.term_s is None:
        lead.say("this job has lost its batch host and does not end by itself: cancelling it")
        done = is_done((yield lead.successor.cancel(lead.job.id)))
        if done is not None:   # refused: Slurm knows no such job any more
            break
        yield 5.0
    return ActOutcome(done, None)


def end_job(lead: Leader) -> Step:
    """Cancel this job where that was announced."""
    if lead.course.end_act is not None:
        yield from lead.course.end_act


def end_announced(lead: Leader, job: str) -> Step:
    """Cancel the job before this one, whose supervisor had announced that, or was handing the run over, when it died or
    stood still: perhaps no script is left there whose end would end the job, and its nodes were nobody's until its
    time limit (simulated, restart.via: resubmit).
    """
    state: str | None = None
    for _ in range(CHANGE_TRIES):
        yield OWN_CANCEL_S
        looked = yield lead.successor.look_at(job)
        state = None if looked is None else lead.successor.state_of(looked, job)
        if state is not None:
            break
    if state != "RUNNING":
        return
    yield from _cancel(lead, job, "end the job before")


def _cancel(
    lead: Leader, job: str, what: str, every_s: float = AGAIN_S
) -> Generator[Command | float, Result | None, bool]:
    """Cancel a job of the run. Whether Slurm has taken it."""
    claim = yield from acts.wait_for_claim(partial(lead.claim, what), every_s)
    return (yield from acts.perform(lead, "cancel", claim, scancel(lead, job), job=job)) is True


def scancel(lead: Leader, job: str) -> Generator[Command, Result | None, ActOutcome[bool | None]]:
    """Whether Slurm has taken a cancel. Unknown is not no: its end would be taken for a person's word (core.state)."""
    done = is_done((yield lead.successor.cancel(job)))
    return ActOutcome(done, done)


def _to_successor(lead: Leader, action: HandOver) -> Passing:
    """The job that waits behind this one goes on as soon as this one has ended."""
    job = lead.state.successor
    if lead.state.next_cancelled is not None:
        found = yield from find_queued(lead)   # a person may have taken it back
        if found is None:
            yield AGAIN_S
        return False if found is False else None
    if job is None:
        lead.tasks.begin(Work.QUEUE_NEXT, queue_successor(lead, is_held=action.held))
        return None
    fate = yield from find_fate(lead, job)
    if fate is Fate.CANCELLED:
        note_cancelled(lead, job)
        return None
    if fate is Fate.LOST:
        note_lost(lead, job)
        return None
    if fate is Fate.STARTED:   # and leads the run
        _note_passed(lead, job, action)
        return True
    result = yield from with_known_nodes(lead, action.exclude, lambda: lead.successor.prepare(
        job, action.exclude, bool(lead.reach.lost), lead.state.successor_excludes))
    if result is not None and not result.is_ok:
        lead.say(f"the successor could not be changed: {said(result)}")
        if lead.successor.is_unchangeable(result, lead.state.successor_excludes):
            yield from _replace(lead, job)
            return None
        if not _is_refused_for_good(lead, result):   # else it goes on without: its supervisor knows the bad nodes
            yield AGAIN_S
            return None
    if action.held:
        yield from _hold(lead, job)
    _note_passed(lead, job, action)
    return True


def _replace(lead: Leader, job: str) -> Step:
    """Take back a next job that excludes a node which has left the cluster: another one is queued in its place."""
    if (yield from _cancel(lead, job, "replace the next job")):
        note_lost(lead, job, "it excluded a node that is no more, and Slurm changes no such job")
    else:
        yield AGAIN_S


def _hold(lead: Leader, job: str) -> Step:
    """Keep the next job in the queue until a person resumes the run, who may have done so in this very moment."""
    while True:
        result = yield lead.successor.hold(job)
        if result is not None and result.is_ok:
            break
        lead.say(f"job {job} could not be held: {said(result)}")
        if _is_refused_for_good(lead, result):   # its supervisor sees the hold
            return
        yield AGAIN_S
    # `resume` takes the file away first and looks for held jobs then: whatever comes after this look, it sees.
    if not _is_on_hold(lead):
        yield lead.successor.release(job)
        return
    lead.say(f"job {job} waits, held, for: safelaunch resume {lead.run_dir}")


def _is_on_hold(lead: Leader) -> bool:
    """Whether a person still holds the run, as the folder says now, or said when it answered last."""
    # A client that remembers the file of a hold that is taken back would hold the job for ever (simulated).
    lead.ask_folder(lambda: fresh.see(f"{lead.run_dir}/control"), 1.0)
    observe.read_requests(lead)
    return any(request.name == "hold" for request in lead.folder.requests)


def _is_refused_for_good(lead: Leader, result: Result | None) -> bool:
    """Whether to ask for no more changes of the next job: scontrol is not there, or has said no again and again."""
    if result is not None and not result.is_unknown:
        lead.next.is_not_changed()
    return result is not None and (ways.is_missing(result.returncode) or lead.next.refused_changes >= CHANGE_TRIES)


def _note_passed(lead: Leader, job: str | None, action: HandOver) -> None:
    lead.record(lead.writer.event("handed_over", job=job, exclude=list(action.exclude), why=action.why))


# --- where nothing can wait behind this job -----------------------------------------------------------------------


def _resubmit(lead: Leader, action: HandOver) -> Passing:
    """sbatch without a dependency. The next job may start before this one has ended: this supervisor does nothing more
    by then, and the next one meets an attempt that has ended.

    Nothing makes Slurm refuse a second such job, so after an answer that did not come two clear looks find none first.
    """
    if lead.ending is None:
        yield from drain(lead)   # so that this job's last pulse is not published over the next one's first
    looks, refusals = 1, 0
    while True:
        found = yield from find_queued(lead)
        if found or lead.ending == JobEnd.CANCELLED or lead.state.next_cancelled is not None:
            return None   # it waits, or goes on already; or a person wants none
        looks -= found is not None
        if looks <= 0:
            yield from announce_end(lead, is_now=False)
            result = yield from _submit_now(lead, action)
            if lead.state.successor is not None:
                _note_passed(lead, lead.state.successor, action)
                return True
            refusals += not result.is_unknown
            if refusals >= REFUSALS and (other := (yield from way_without_sbatch(lead))) is not None:
                choose(lead, other, f"sbatch says: {said(result)}")
                return None
            looks = 2
        yield SETTLE_S


def _submit_now(lead: Leader, action: HandOver) -> Generator[Command | float, Result | None, Result]:
    """sbatch of the next job: announced, done, written down."""
    claim = yield from acts.wait_for_claim(
        lambda: lead.claim("submit the next job") if lead.is_sure_of_folder() else 0, 1.0)
    result, job = yield from acts.perform(lead, "queue_successor", claim, _sbatch(lead, action))
    if job is None:
        lead.say(f"the next job could not be submitted: {said(result)}")
    elif action.held:
        yield from _hold(lead, job)
    return result


def _sbatch(
    lead: Leader, action: HandOver
) -> Generator[Command | float, Result | None, ActOutcome[tuple[Result, str | None]]]:
    result = yield from with_known_nodes(lead, action.exclude, lambda: lead.successor.submit(
        action.exclude, is_behind=False, is_held=action.held))
    assert result is not None
    if (job := lead.successor.job_from(result)) is None:
        return ActOutcome(None if result.is_unknown else False, (result, None))
    return ActOutcome(True, (result, job), then=(queued(lead, job, action.exclude),))


def _requeue(lead: Leader, action: HandOver) -> Passing:
    """This job goes back into the queue, without the nodes that are bad now.

    A plain requeue and no requeuehold: the job waits 121 s of itself, time enough for the changes, and a supervisor
    that dies among them leaves a job that starts and not one that is held for ever. Measured (22.05): `scontrol update`
    of ExcNodeList and uhold are obeyed while the job is COMPLETING already (see start_soon).
    """
    if lead.ending == JobEnd.UNKNOWN:   # Slurm's last word on it, CANCELLED perhaps, would be lost (simulated)
        choose(lead, ways.WATCH, "nothing tells why this job ends, and one that a person cancels must not come back")
        return None
    if lead.ending is None:
        yield from drain(lead)
        if not any(intent.act == "requeue" for intent in lead.state.intents):   # else an earlier supervisor, which died
            yield from observe.look_whether_it_ends(lead)
        if lead.term_s is not None or lead.ending is not None:
            return None   # a person's cancel, perhaps, which a requeue would undo (simulated)
    claim = yield from acts.wait_for_claim(partial(lead.claim, "requeue this job"), 1.0)
    refused = yield from acts.perform(lead, "requeue", claim, _ask_to_requeue(lead), job=lead.job.id,
                                      exclude=list(action.exclude))
    if refused is not None:
        choose(lead, ways.WATCH, f"this job could not be requeued: {refused}")
        return None
    yield from learn_why_it_ends(lead)   # the TERM of the requeue, or of a cancel just before it
    if lead.ending == JobEnd.CANCELLED:   # Slurm requeues a cancelled job that has not ended yet (simulated)
        yield from _take_back(lead)
        return False
    lead.course.job_ends(lead.ending or JobEnd.REQUEUED)   # the TERM that comes now is ours
    _note_passed(lead, lead.job.id, action)
    if lead.took_over is not None:
        observe.publish_pulse(lead, is_over=True)   # the other supervisors must not take this for a death
    if action.held and _is_on_hold(lead):   # else this job can be gone between a hold and its release (simulated)
        yield from _hold(lead, lead.job.id)
    yield from _keep_out(lead, action.exclude)
    return True


def _take_back(lead: Leader) -> Step:
    """Take this job, which a person has cancelled, out of the queue into which it was put back a moment later."""
    for _ in range(CHANGE_TRIES):
        if (yield from _cancel(lead, lead.job.id, "take this job back", 1.0)):
            return
        yield 0.5


def start_soon(lead: Leader) -> Step:
    """Let this requeued job start when this supervisor has gone, and not two minutes later.

    When a requeued job stops completing, Slurm sets its StartTime to 121 s from then, unless one in the future stands
    there already (job_mgr.c, batch_requeue_fini). So "now" is of no use while it completes, and "now+8" is. Nor is
    "now" safe right after that: in the second in which a job was killed slurmd says "already killed, do not launch
    batch job", the job is FAILED and gone (both measured, 22.05).
    """
    if lead.state.successor != lead.job.id:
        return
    for _ in range(CHANGE_TRIES):
        result = yield lead.successor.start_in(START_IN_S)
        if result is not None and result.is_ok:
            lead.say(f"job {lead.job.id} is back in the queue, and may start in {START_IN_S} s")
            return
        yield 0.5
    lead.say(f"job {lead.job.id} is back in the queue. Slurm lets it wait for two minutes; to start it at once, once "
             f"it is pending: scontrol update JobId={lead.job.id} StartTime=now+3")


def _ask_to_requeue(lead: Leader) -> Generator[Command | float, Result | None, ActOutcome[str | None]]:
    """None once Slurm has put this job back into the queue, however often its answer got lost; else what it said."""
    refusals = 0
    while True:
        yield lead.successor.allow_requeue()
        result = yield lead.successor.requeue()
        if result is not None and result.is_ok:
            return ActOutcome(True, None)
        looked = yield lead.successor.look_at(lead.job.id)
        state = None if looked is None else lead.successor.state_of(looked, lead.job.id)
        if state in ("COMPLETING", "PENDING"):   # also of somebody else's requeue
            return ActOutcome(True, None)
        refusals += result is not None and not result.is_unknown
        if refusals >= REFUSALS or (result is not None and ways.is_missing(result.returncode)):
            return ActOutcome(False, said(result))
        yield 1.0


def _keep_out(lead: Leader, exclude: tuple[str, ...]) -> Step:
    """Keep the requeued job from bad nodes, and read that back."""
    for _ in range(CHANGE_TRIES if exclude else 0):
        yield from with_known_nodes(lead, exclude, lambda: lead.successor.prepare(lead.job.id, exclude))
        looked = yield lead.successor.look_closely()
        job = None if looked is None else lead.successor.own(looked)
        if job is not None and lead.successor.has_excluded(job, exclude):
            return
        yield 0.5
    if exclude:
        lead.say(f"job {lead.job.id} could not be kept from {nodefold.fold(exclude)}: whoever leads it hands over "
                 "again")


def _to_watch(lead: Leader, action: HandOver) -> Passing:
    """A watcher queues the next job, or has done so."""
    if lead.ending is None:
        yield from drain(lead)
    for _ in range(2):
        found = yield from find_queued(lead)
        if found or lead.state.next_cancelled is not None:
            return None
        if found is False:
            break
        yield SETTLE_S
    lead.record(lead.writer.event("need_successor", exclude=list(action.exclude), why=action.why))
    lead.say("the next job is to be queued from outside: safelaunch watch --once, on a host that has sbatch")
    _note_passed(lead, None, action)
    return True


_WAYS = {ways.SUCCESSOR: _to_successor, ways.RESUBMIT: _resubmit, ways.REQUEUE: _requeue, ways.WATCH: _to_watch}
