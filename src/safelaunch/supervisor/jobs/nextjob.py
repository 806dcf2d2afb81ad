"""The run's next job: how it is made (slurm.via), the one queued behind this job, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from safelaunch.base.model import Event
from safelaunch.decide.ends import passing
from safelaunch.decide.ends.passing import SETTLE_S, Refused, Secure
from safelaunch.decide.facts.actions import AskNodes, HandOver
from safelaunch.decide.io.knownnodes import try_with_fewer, try_with_known
from safelaunch.decide.jobs import cancel, successor
from safelaunch.decide.jobs.cancel import Fate, NextJobFacts, SlurmQuestion
from safelaunch.decide.nodes.resize import SOON_S
from safelaunch.guard.io.job import Allocation
from safelaunch.run import acts
from safelaunch.run.acts import ActOutcome
from safelaunch.script.laterjobs import options
from safelaunch.script.script import quote_bash
from safelaunch.slurm import jobstates, nodefold
from safelaunch.slurm import via as ways
from safelaunch.slurm.excludelist import NO_SUCH_NODE
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result, outcome
from safelaunch.supervisor.jobs.following import look_at_others, tell_followers
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nextjob import NextJob, NextSlot, Queueing
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.ports import Here, Say
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.suspicion import Suspicions
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

FIRST_LOOK_S = 60.0    # one early check tells a job that slurmctld lost from one that a person cancelled

Acting = Generator[Command | float, Result | None, bool]
Asking = Generator[Command | float, Result | None, Fate]


def secure_next(queueing: Queueing) -> None:
    """See to the next job from the start of this one, and to the runs before it; also after a restart of the leader."""
    slot, files, tasks = queueing.slot, queueing.files, queueing.tasks
    plan, state = slot.here.plan, slot.journal.state
    if files.state.gone is not None:
        return
    if passing.waits_for_others(plan, state):
        tasks.begin(Work.LOOK_AT_OTHERS, look_at_others(slot.here, queueing.clock, files, slot.next_job))
    match passing.secure(plan, state):
        case Secure.NOTE_WAY:
            choose(slot.journal, slot.say, plan.restart.via, "restart.via says so")
        case Secure.QUEUE:
            tasks.begin(Work.QUEUE_NEXT, queue_successor(queueing))
        case Secure.FOLLOW:
            tasks.begin(Work.WATCH_NEXT, watch_successor(queueing))


def choose(journal: LeaderJournal, say: Say, via: str, why: str) -> None:
    """Decide how the next job is made, and say so."""
    if journal.state.via != via:
        journal.record(journal.event("via_chosen", via=via, why=why))
    say(f"{ways.sentence(via)} (restart.via: {via}; {why})")


def queue_successor(queueing: Queueing, is_held: bool = False) -> Step:
    """Queue the next job of this run behind this one, or find another way to make it."""
    slot, tasks, course = queueing.slot, queueing.tasks, queueing.course
    here, journal, next_job, say = slot
    refusals = unclear = 0
    while journal.state.ended is None and course.final is None and journal.state.next_cancelled is None:
        claim = journal.claim("queue the successor")
        if claim == 0:
            yield SETTLE_S
            continue
        tried = yield from acts.perform(journal, "queue_successor", claim, _try_to_queue(slot, is_held))
        result = tried.result
        if tried.taken is not None:
            note_cancelled(slot, tried.taken)
            return
        if result is None:
            yield SETTLE_S
            continue
        if tried.job is not None:
            choose(journal, say, ways.SUCCESSOR, "sbatch works here" if here.plan.restart.via == "auto" else
                   "restart.via says so")
            tasks.begin(Work.WATCH_NEXT, watch_successor(queueing))
            yield from tell_followers(here, journal, queueing.files.state, say, tried.job)
            return
        said = (result.stderr or result.stdout).strip()[:300]
        say(f"the successor could not be queued: {said}")
        if result.is_ok or result.is_unknown:   # no clear answer: the next round checks first, it may be queued
            yield passing.pause_without_answer(unclear)
            unclear += 1
            continue
        refusals += 1
        may_choose = passing.may_take_other_way(here.plan.restart.via, is_leaving=tasks.is_leaving)
        other = (yield from _other_way(here, next_job, result, refusals)) if may_choose else None
        if other is not None:
            choose(journal, say, other, said)
            return
        yield passing.pause_after_refusal(refusals, is_leaving=tasks.is_leaving)


class _Tried(NamedTuple):
    """The result of one try to queue the next job; all None = the run folder does not answer."""

    job: str | None = None
    taken: str | None = None        # the next job, which a person has cancelled
    result: Result | None = None    # Slurm's last answer


def _try_to_queue(slot: NextSlot, is_held: bool) -> Generator[Command | float, Result | None, ActOutcome[_Tried]]:
    here, journal, next_job, _ = slot
    result = yield next_job.successor.query_all()   # an earlier leader may have queued one and died before it said so
    assert result is not None
    waiting = next_job.successor.waiting(result)
    job, exclude = waiting[0] if waiting else None, journal.state.excluded
    if waiting == ():
        taken = successor.taken_back(journal.state, here.job.id, next_job.successor.cancelled(result))
        if taken is not None:
            return ActOutcome(False, _Tried(taken=taken))
        if not next_job.check_folder():
            return ActOutcome(False, _Tried())
        result, exclude = yield from submit_next(slot, exclude, is_held=is_held)
        job = next_job.successor.job_from(result)
    then = () if job is None else (queued(here.job, journal, job, exclude),)
    return ActOutcome(job is not None, _Tried(job, None, result), then=then)


def submit_next(
    slot: NextSlot, exclude: tuple[str, ...], *, is_behind: bool = True, is_held: bool
) -> Generator[Command, Result | None, tuple[Result, tuple[str, ...]]]:
    """The result of sbatch of the next job, and the nodes that it is kept from in the end; said where these are fewer.
    """
    commands, more = slot.next_job.successor, options(slot.next_job.later)
    result, kept = yield from try_with_fewer(exclude, lambda names: with_known_nodes(
        slot, names, lambda: commands.submit(names, is_behind=is_behind, is_held=is_held, more=more)))
    if result.is_ok and kept != exclude:
        slot.say(f"the next job may use {nodefold.fold(exclude)} again: Slurm refuses a job that excludes them, since "
                 "too few nodes are left")
    return result, kept


def with_known_nodes(
    slot: NextSlot, named: tuple[str, ...], start: Callable[[], Command | None]
) -> Generator[Command, Result | None, Result | None]:
    """The result of a command that names nodes (knownnodes.try_with_known); names unknown to Slurm are journalled."""
    _, journal, next_job, say = slot

    def leave_out(there: tuple[str, ...] | None) -> bool:
        gone = next_job.successor.leave_out(there, named)
        if gone:
            journal.record(*(journal.event("node_left_out", node=node, why=NO_SUCH_NODE) for node in gone))
            say(f"left out of the exclude lists: {', '.join(gone)} ({NO_SUCH_NODE})")
        return bool(gone)

    return (yield from try_with_known(start, next_job.successor.ask_nodes, leave_out))


def affordable(
    suspects: Suspicions, wanted: tuple[str, ...]
) -> Generator[Command | float, Result | None, tuple[str, ...]]:
    """The nodes `wanted` out, as far as the next job can start without them. sinfo is asked where it has not told yet.
    """
    yield from suspects.ask_available()
    return successor.affordable(suspects.here.plan, suspects.journal.state, wanted, suspects.nodes.partition)


def change_next(
    slot: NextSlot, suspects: Suspicions, reach: Reach, job: str, action: HandOver
) -> Generator[Command | float, Result | None, tuple[Result | None, HandOver]]:
    """The last changes to the job that waits behind this one, and what it is kept from in the end. Kept from too many
    nodes it would wait for ever. So while sinfo has no answer it is kept from no more (simulated: test_found "a next
    job is not kept from a node that it needs, though its supervisor dies before sinfo answers"). sinfo is asked again
    once Slurm has obeyed (simulated: test_found "a next job is not kept from nodes that it needs, though sinfo answers
    late"). Where the site hides its nodes, the ledger's limit must do.
    """
    known = slot.journal.state.successor_excludes
    fits = yield from affordable(suspects, action.exclude)
    if fits and suspects.nodes.partition is None:
        result = yield from _change(slot, reach, job, known, known, action)
        if result is not None and not result.is_ok:
            return result, action
        fits = yield from affordable(suspects, action.exclude)
    # A try before this one may have been obeyed without an answer.
    return (yield from _change(slot, reach, job, fits, (*known, *action.exclude), action)), replace(
        action, exclude=fits)


def _change(
    slot: NextSlot, reach: Reach, job: str, exclude: tuple[str, ...], known: tuple[str, ...], action: HandOver
) -> Generator[Command, Result | None, Result | None]:
    return (yield from with_known_nodes(slot, exclude, partial(
        slot.next_job.successor.prepare, job, exclude, bool(reach.lost), known, action.behind)))


def is_queueing(tasks: BackgroundTasks) -> bool:
    """Whether a next job may be on its way into the queue now; an act that only sleeps submits none."""
    return tasks.waits_for_command(Work.QUEUE_NEXT)


def queued(own_job: Allocation, journal: LeaderJournal, job: str, exclude: tuple[str, ...]) -> Callable[[], Event]:
    """Makes the event with which a next job counts."""
    return lambda: journal.event("submitted", job=job, successor_of=own_job.id, exclude=list(exclude))


def _other_way(
    here: Here, next_job: NextJob, refused: Result, refusals: int
) -> Generator[Command, Result | None, str | None]:
    """The way that is left where Slurm, or this host, refuses a successor; None = try again."""
    step = passing.after_refusal(refused.stderr, is_missing=refused.is_missing, refusals=refusals)
    if step is Refused.TEST:
        step = passing.after_test(outcome((yield next_job.successor.test())))
    if step is Refused.AGAIN:
        return None
    return ways.RESUBMIT if step is Refused.RESUBMIT else (yield from way_without_sbatch(here, next_job))


def way_without_sbatch(here: Here, next_job: NextJob) -> Generator[Command, Result | None, str | None]:
    """requeue where scontrol works on this host, else watch; None = no answer."""
    return passing.without_sbatch(outcome((yield next_job.successor.run(slurm.show_job(here.job.id)))),
                                  is_small=len(here.job.nodes) < here.plan.allocated_nodes)


def ask_missing(clock: Clock, next_job: NextJob, nodes: Nodes, action: AskNodes) -> Step:
    """Ask Slurm when it could give the run the nodes that a full set lacks. Its estimate is late where jobs wait, such
    as the run's own next one: 22 minutes for nodes that were idle (22.05, measured). So sinfo tells who is idle.
    """
    found = next_job.successor.free_nodes((yield next_job.successor.ask_nodes_for(action.count, action.but)), clock.now)
    if found.nodes and found.free_t is not None and found.free_t > found.t + SOON_S and next_job.successor.are_idle(
            found.nodes, (yield next_job.successor.ask_nodes())):
        found = found._replace(free_t=found.t)
    nodes.note_missing(found)


# --- its fate -----------------------------------------------------------------------------------------------------


def watch_successor(queueing: Queueing) -> Step:
    """Check at intervals whether the successor still waits: a person who cancels it wants the run to end with this job.
    """
    slot, tasks, journal = queueing.slot, queueing.tasks, queueing.slot.journal
    wait_s = FIRST_LOOK_S
    while True:
        yield wait_s
        wait_s = passing.LOOK_EVERY_S
        job = journal.state.successor
        if job is None or queueing.course.final is not None or tasks.is_leaving:
            return
        fate = yield from find_fate(queueing.clock, journal, slot.next_job, job)
        if fate is Fate.CANCELLED and journal.state.successor == job:
            note_cancelled(slot, job)
            return
        if fate is Fate.LOST and journal.state.successor == job and not tasks.is_leaving:
            note_lost(journal, job)
            if queueing.files.state.gone is None:
                tasks.begin(Work.QUEUE_NEXT, queue_successor(queueing))
            return


def find_fate(clock: Clock, journal: LeaderJournal, next_job: NextJob, job: str) -> Asking:
    """What has become of a successor: asks Slurm until the answers tell."""
    known = next((one for one in journal.state.jobs if one.id == job), None)
    seen = NextJobFacts(announced=job in journal.state.cancelled_jobs)
    asking: SlurmQuestion | None = None
    while (asking := cancel.next_question(seen, asking)) is not None:
        match asking:
            case SlurmQuestion.JOB:
                result = yield next_job.successor.run(slurm.squeue_job(job))
                seen = seen._replace(state=None if result is None else next_job.successor.state_of(result, job),
                                     age_s=None if known is None else clock.now - known.submitted_t)
            case SlurmQuestion.QUEUE:
                result = yield next_job.successor.query_all()
                waiting = None if result is None else next_job.successor.waiting(result)
                seen = seen._replace(is_queued=None if waiting is None else job in waiting)
            case SlurmQuestion.ACCOUNT:
                account = next_job.successor.account_state((yield next_job.successor.run(slurm.sacct([job]))), job)
                seen = seen._replace(account=account)
    return cancel.judge_next(seen)


def note_cancelled(slot: NextSlot, job: str) -> None:
    """Journal that a person cancelled the successor, and say how to undo that."""
    here, journal, next_job, say = slot
    journal.record(journal.event("successor_cancelled", job=job, why="Slurm no longer has it, and nobody but a person "
                                 "takes a job that waits out of the queue"))
    say(f"a person cancelled job {job}, its next job: the run ends with this job. Restarts "
        f"within it go on; no other job is queued. To undo that while this job runs: sbatch "
        f"--chdir={quote_bash(here.job.cwd)} {next_job.successor.dependency} {quote_bash(next_job.successor.script)}")


def cancel_job(journal: LeaderJournal, next_job: NextJob, job: str, what: str, every_s: float = SETTLE_S) -> Acting:
    """Cancel a job of the run; whether Slurm has accepted that."""
    claim = yield from acts.wait_for_claim(partial(journal.claim, what), every_s)
    return (yield from acts.perform(journal, "cancel", claim, scancel(next_job, job), job=job)) is True


def scancel(next_job: NextJob, job: str) -> Generator[Command, Result | None, ActOutcome[bool | None]]:
    """Whether Slurm has accepted a cancel. Unknown is not no: the end would look like a person's cancel."""
    done = outcome((yield next_job.successor.run(slurm.scancel(job))))
    return ActOutcome(done, done)


def note_lost(journal: LeaderJournal, job: str, why: str = "it is gone, and nobody has cancelled it") -> None:
    """Journal that there is no successor any more, so that another one is queued."""
    journal.record(journal.event("successor_lost", job=job, why=why))


def find_queued(slot: NextSlot) -> Generator[Command, Result | None, bool | None]:
    """Whether a next job that this leader did not know of is queued or has started: another supervisor's, a watch's, or
    a person's. It counts from now on. One that a person cancelled is noted. None = no clear answer.
    """
    here, journal, next_job, _ = slot
    result = yield next_job.successor.query_all()
    if result is None or next_job.successor.waiting(result) is None:
        return None
    before = {known.id for known in journal.state.jobs if known.started_t is not None}
    job = next_job.successor.job_from(result, jobstates.STARTING, before)
    if job is None:
        taken = successor.taken_back(journal.state, here.job.id, next_job.successor.cancelled(result))
        if taken is not None and journal.state.next_cancelled is None:
            note_cancelled(slot, taken)
        return False
    journal.record(queued(here.job, journal, job, journal.state.excluded)())
    return True
