"""How the run passes from this job to its next one, and when it ends instead."""

from __future__ import annotations

from enum import Enum

from safelaunch.base.endings import JobEnd, RunEnd
from safelaunch.base.model import FAILED_FOR_GOOD, STOPPED
from safelaunch.decide.budget.endless import is_last_job
from safelaunch.decide.facts.actions import Finish, HandOver
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from safelaunch.slurm import jobstates
from safelaunch.slurm import via as ways


class Secure(Enum):
    """What a leader does about the run's next job when it starts."""

    NOTHING = "there is no queue, or the run has ended, or a person or restart.max_jobs wants no next job"
    NOTE_WAY = "the user has chosen a way on which nothing waits behind this job"
    QUEUE = "queue one behind this job"
    FOLLOW = "one is queued: see what becomes of it"


def secure(plan: Plan, state: State) -> Secure:
    """The first step towards the next job; the same after a restart of the leader."""
    if (not ways.has_next_job(plan.cluster) or state.ended is not None or state.next_cancelled is not None
            or is_last_job(state, plan)):
        return Secure.NOTHING
    if plan.restart.via not in ("auto", ways.SUCCESSOR):
        return Secure.NOTE_WAY
    return Secure.QUEUE if state.successor is None else Secure.FOLLOW


def waits_for_others(plan: Plan, state: State) -> bool:
    """Whether the run is to look how the runs before it ended (`submit --after`): until its first attempt."""
    return bool(plan.after) and not state.attempts and state.ended is None


def may_write_end(*, has_claim: bool, is_contested: bool) -> bool:
    """Whether a leader writes the run's end down. Without a claim not while another supervisor may lead: an old leader
    may take the end of its job for a person's cancel (simulated: test_found "old leader takes the end of its job by the
    new one for no persons word"). The next job then reads how this one ended.
    """
    return has_claim or not is_contested


def begin(action: HandOver, plan: Plan) -> HandOver | Finish:
    """Whether there can be a next job at all; a machine without Slurm has no queue, and a shell's job is its own."""
    if ways.has_next_job(plan.cluster):
        return action
    alone = "; no job follows that of a shell (submit --here)" if plan.cluster == ways.HERE else ""
    return Finish(RunEnd.GAVE_UP, FAILED_FOR_GOOD, f"{action.why}{alone}")


def is_taken_back(*, is_passed: bool, ending: str | None) -> bool:
    """Whether a person has cancelled this job or the next one meanwhile, which is final."""
    return not is_passed or ending == JobEnd.CANCELLED


def end_of_taken_back(ending: str | None) -> Finish:
    """How a run ends whose job, or next job, a person has cancelled while it was handed over."""
    cancelled = "this job" if ending == JobEnd.CANCELLED else "the run's next job"
    return Finish(RunEnd.STOPPED, STOPPED, f"a person cancelled {cancelled}")


CANCEL_REFUSALS = 3   # of the next job's cancel, before the run's end waits for it no longer


def may_leave_queued(
    is_empty: bool | None, refused: int, *, is_ending: bool, is_late: bool, is_very_late: bool
) -> bool:
    """Whether a run ends although its next job may still be queued: that one sees the end when it starts, and ends.

    `is_empty`: None = Slurm does not answer. While slurmctld is away nobody else gets these nodes, and a held next job
    would wait without end. One refusal proves nothing: the answers before it may have taken the time.
    """
    has_time = (is_empty is None or refused < CANCEL_REFUSALS) and not is_ending
    return is_very_late if has_time else is_late


def way_of(state: State) -> str:
    """The way to take now (slurm.via): a next job that is queued, or was cancelled, comes before what was chosen."""
    has_job = state.successor is not None or state.next_cancelled is not None
    return ways.SUCCESSOR if has_job else state.via or ways.SUCCESSOR


def is_settled(state: State, ending: str | None, *, is_queued: bool | None) -> bool:
    """Whether no next job is to be made now: one `is_queued`, or a person wants none."""
    return is_queued is True or state.next_cancelled is not None or ending == JobEnd.CANCELLED


class Behind(Enum):
    """What to do about the job behind this one."""

    LOOK = "a person has cancelled it: see whether another one is queued by now"
    QUEUE = "there is none: queue one"
    ASK = "ask Slurm what has become of it"


def behind(state: State) -> Behind:
    """The first step of handing over to a job that waits."""
    if state.next_cancelled is not None:
        return Behind.LOOK
    return Behind.QUEUE if state.successor is None else Behind.ASK


class Change(Enum):
    """What follows where Slurm refuses to change the job that waits."""

    DONE = "it goes on as it is: its supervisor knows the bad nodes"
    REPLACE = "no change of it will be obeyed: cancel it, and queue another one"
    AGAIN = "try again"


def after_refused(*, is_stuck: bool, is_hopeless: bool) -> Change:
    """`is_stuck`: no change of it will ever be obeyed; `is_hopeless`: scontrol is missing, or refuses always."""
    if is_stuck:
        return Change.REPLACE
    return Change.DONE if is_hopeless else Change.AGAIN


MOST_REFUSALS = 2   # of sbatch, before another way is looked for: a limit on submissions may pass


MOST_CHANGES_REFUSED = 5   # of the job that waits: Slurm refuses some while this one ends


def is_hopeless(refusals: int, most: int, *, is_missing: bool) -> bool:
    """Whether a command of Slurm is not tried again: this host lacks it, or it has refused so often."""
    return is_missing or refusals >= most


class Refused(Enum):
    """What follows where sbatch refuses the job that is to wait behind this one."""

    AGAIN = "try again later"
    TEST = "ask sbatch whether this host may submit a job without a dependency"
    RESUBMIT = "submit it when this job ends, without a dependency"
    NO_SBATCH = "sbatch is of no use here: another way (without_sbatch)"


def after_refusal(said: str, *, is_missing: bool, refusals: int) -> Refused:
    """The next step; `refusals`: of sbatch so far."""
    if is_missing:
        return Refused.NO_SBATCH
    if ways.is_dependency_refused(said):
        return Refused.RESUBMIT
    return Refused.AGAIN if refusals < MOST_REFUSALS else Refused.TEST


REFUSED_S = 60.0       # maintenance, or a limit on submissions, passes
MAX_REFUSED_S = 600.0  # ... while the nodes of this job have nothing else to wait for
LOOK_EVERY_S = 3600.0  # with a check of the time limit each half an hour this stays below 48 calls a day
SETTLE_S = 5.0         # slurmctld handles its waiting requests within a second of coming back
PATIENCE_S = 30.0      # at most, between two questions while slurmctld is away
MOST_DOUBLED = 10      # times: of 1,025 no number holds the result, and a slurmctld may be away for days


def pause_after_refusal(refusals: int, *, is_leaving: bool) -> float:
    """Seconds until sbatch is tried again, after so many refusals."""
    return min(MAX_REFUSED_S if is_leaving else LOOK_EVERY_S, REFUSED_S * 2.0 ** min(refusals - 1, MOST_DOUBLED))


def pause_without_answer(unclear: int) -> float:
    """Seconds until Slurm is asked again, after so many answers in a row that were none, and one more."""
    return min(PATIENCE_S, SETTLE_S * 2.0 ** min(unclear, MOST_DOUBLED))


def may_take_other_way(via: str, *, is_leaving: bool) -> bool:
    """Whether another way is looked for where sbatch refuses: at the end of this job any is better than a lost run."""
    return via == "auto" or is_leaving


def may_submit_alone(clear_looks: int, submissions: int) -> bool:
    """Whether to submit a next job without a dependency. Slurm would accept a second one: after a submission whose
    answer is lost two clear looks at the queue must find none.
    """
    return clear_looks >= (2 if submissions else 1)


def after_test(is_ok: bool | None) -> Refused:
    """The next step after sbatch --test-only; None = no clear answer."""
    return Refused.AGAIN if is_ok is None else Refused.RESUBMIT if is_ok else Refused.NO_SBATCH


def without_sbatch(scontrol_works: bool | None, *, is_small: bool = False) -> str | None:
    """The way (slurm.via) where sbatch is of no use; None = nobody knows yet. `is_small`: a watch has let this job
    start with fewer nodes than the run's. Requeued it would keep that size for ever.
    """
    if is_small:
        return ways.WATCH
    return None if scontrol_works is None else ways.REQUEUE if scontrol_works else ways.WATCH


class Requeue(Enum):
    """What to do about the requeue of this job."""

    CHECK = "deliver all writes, and ask Slurm whether it ends this job already"
    ASK = "ask Slurm to requeue it"
    TO_WATCH = "leave the next job to a watch: a job that a person cancels must not come back"
    TAKE_BACK = "cancel the requeued job: a person had cancelled it just before"
    DONE = "it waits in the queue"


def before_requeue(ending: str | None) -> Requeue:
    """The next step before Slurm is asked. A job that ends anyway has no time for a check; its reason is known."""
    if ending == JobEnd.UNKNOWN:
        return Requeue.TO_WATCH
    return Requeue.CHECK if ending is None else Requeue.ASK


def is_requeued(state: str | None) -> bool:
    """Whether a job is back in the queue, or on its way there, though the answer was lost or somebody else asked."""
    return state in (jobstates.COMPLETING, jobstates.PENDING)


def is_requeue_due(ending: str | None, *, has_term: bool) -> bool:
    """True if the job is not ending yet. If it is, the reason must be known before a requeue."""
    return ending is None and not has_term


def after_requeue(ending: str | None, refused: str | None) -> Requeue:
    """What follows from Slurm's answer; `ending`: why the job ends, once a TERM that came meanwhile is explained."""
    if refused is not None:
        return Requeue.TO_WATCH
    return Requeue.TAKE_BACK if ending == JobEnd.CANCELLED else Requeue.DONE
