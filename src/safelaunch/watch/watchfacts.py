"""What a run's folder and Slurm's answer say together: the plain questions that the rows of watch.watch ask."""

from __future__ import annotations

from collections.abc import Iterable

from safelaunch.base.endings import JobEnd
from safelaunch.base.model import STOPS
from safelaunch.decide.budget import endless
from safelaunch.decide.jobs import cancel, successor
from safelaunch.decide.jobs.cancel import Canceller, Witnesses
from safelaunch.decide.nodes.nodes import kept_out
from safelaunch.errors import ParseError
from safelaunch.slurm import jobstates, nodeset, slurmtext, via
from safelaunch.slurm.slurmtext import KnownJob, can_never_start, render_elapsed
from safelaunch.watch.watched import SlurmAnswer, Watched

QUIET_S = 180.0           # an announced act whose outcome is missing: its commands have deadlines of 60 s
# After a refusal of sbatch (a limit on submissions, maintenance) it is asked again after two, four … minutes.
REFUSED_S, MOST_REFUSED_S = 60.0, 3600.0


def is_queued_here(run: Watched) -> bool:
    """Whether the run's next job is the watch's to queue: as it was asked, or as its leader found (slurm.via)."""
    return (run.state.via or run.plan.restart.via) == via.WATCH


def can_wait_behind(run: Watched) -> bool:
    """Whether a job can wait for the one that runs; where sbatch refuses dependencies it comes when that is over."""
    is_at_end = via.is_at_end(run.state.via or run.plan.restart.via)
    return not is_at_end and not any(map(via.is_dependency_refused, run.notes.refused))


def wants_next(run: Watched, slurm_answer: SlurmAnswer) -> bool:
    """Whether no person wants the run to end with the job that runs, or to wait behind it."""
    noted = run.state.next_cancelled is not None or bool(taken_back(run, slurm_answer))
    return not noted and run.asked(*STOPS, "hold") is None and not endless.is_last_job(run.state, run.plan)


def taken_back(run: Watched, slurm_answer: SlurmAnswer) -> tuple[str, ...]:
    """The next jobs that a person cancelled, as some watch saw or sees; no later one is known."""
    seen = (job.number for job in slurm_answer.jobs or () if job.state == jobstates.CANCELLED)
    return tuple(id for id in (*run.notes.cancelled, *seen)
                 if not is_ours(run, id) and not any(successor.is_before(id, job.id) for job in run.state.jobs))


def is_ours(run: Watched, job: str) -> bool:
    """Whether a scancel of that job is no person's: the journal announced it, or a guard or Slurm itself did it."""
    return cancel.judge(_witnesses(run, job)) is Canceller.NOBODY


def _witnesses(run: Watched, job: str, state: str | None = None) -> Witnesses:
    announced = job in run.state.cancelled_jobs or job in run.orphaned
    ending = JobEnd.CANCELLED if job in run.scancelled else None
    return Witnesses(job in run.notes.cancelled, announced, ending, state=state)


def is_requeued(run: Watched, job: str) -> bool:
    """Whether a supervisor put that job, which had run, back into the queue."""
    ran = any(known.id == job and known.started_t is not None for known in run.state.jobs)
    announced = any(intent.act == "requeue" and intent.data.get("job") == job for intent in run.state.intents)
    return ran and (run.state.successor == job or announced)


def unfinished(slurm_answer: SlurmAnswer) -> tuple[KnownJob, ...]:
    """The run's jobs that are not over."""
    return tuple(job for job in slurm_answer.jobs or () if jobstates.is_alive(job.state))


def running_job(slurm_answer: SlurmAnswer) -> KnownJob | None:
    """Its job that runs, or is about to; one at its end counts no more."""
    past = {*jobstates.QUEUED, jobstates.COMPLETING}
    return next((job for job in unfinished(slurm_answer) if job.state not in past), None)


def waiting_job(slurm_answer: SlurmAnswer) -> KnownJob | None:
    """Its job that waits in the queue."""
    return next((job for job in unfinished(slurm_answer) if job.state in jobstates.QUEUED), None)


def job_of(slurm_answer: SlurmAnswer, id: str | None) -> KnownJob | None:
    """The job of that id, in whatever state Slurm remembers it."""
    return next((job for job in slurm_answer.jobs or () if job.number == id), None)


def cancelled_by_person(run: Watched, slurm_answer: SlurmAnswer, jobs: Iterable[str | None]) -> str | None:
    """The sentence on the first of `jobs` that a person cancelled; safelaunch's own journalled cancels do not count."""
    for id in jobs:
        if id is None or is_ours(run, id):
            continue
        if id == run.state.next_cancelled:
            return f"job {id} was cancelled by a person before it started"
        known, account = job_of(slurm_answer, id), (slurm_answer.accounts or {}).get(id)
        if id in run.scancelled and _is_person(run, id, None):
            return f"job {id} was cancelled by a person (its output says so)"
        if _is_person(run, id, known.state if known else None):
            return f"job {id} was cancelled by a person (squeue)"
        if account is not None and _is_person(run, id, account.state):
            by = f" by user {account.cancelled_by}" if account.cancelled_by else " by a person"
            return f"job {id} was cancelled{by} (sacct)"
    return None


def _is_person(run: Watched, job: str, state: str | None) -> bool:
    return cancel.judge(_witnesses(run, job, state)) is Canceller.PERSON


def ended_well(slurm_answer: SlurmAnswer, id: str) -> str | None:
    """A job that trained without a supervisor and ended well: only Slurm has noted it."""
    known, account = job_of(slurm_answer, id), (slurm_answer.accounts or {}).get(id)
    if jobstates.COMPLETED not in (known.state if known else "", account.state if account else ""):
        return None
    return f"job {id} ended with exit code 0, as Slurm says"


def affordable(run: Watched, slurm_answer: SlurmAnswer, lost: Iterable[str]) -> tuple[str, ...] | None:
    """What the next job is kept from, as far as it can start without; None = sinfo is to say first."""
    exclude = kept_out(run.state, lost)
    if set(exclude) <= set(run.state.excluded):
        return exclude
    if slurm_answer.nodes is None:
        return None
    there = {node for _, nodes in slurm_answer.nodes for node in expand(nodes) or ()}
    return successor.affordable(run.plan, run.state, exclude, there)


def usable_nodes(run: Watched, slurm_answer: SlurmAnswer) -> tuple[str, ...] | None:
    """The nodes that jobs of the run can get now, or later; None = Slurm does not say which are in its reservation."""
    if slurm_answer.nodes is None or (slurm_answer.reserved is None and dict(run.plan.sbatch).get("reservation")):
        return None
    readable = (row for row in slurm_answer.nodes if expand(row[1]) is not None)
    return slurmtext.usable_of(readable, slurm_answer.reserved)


def idle_nodes(run: Watched, slurm_answer: SlurmAnswer) -> set[str]:
    """Those of them that no job has. One that backfill keeps for a job is called planned, of a reservation reserved."""
    states = ("idle", "planned", "reserved")
    idle = {node for state, nodes in slurm_answer.nodes or () if state in states for node in expand(nodes) or ()}
    return idle.intersection(usable_nodes(run, slurm_answer) or ())


def expand(text: str) -> tuple[str, ...] | None:
    """Node names of Slurm's list; None where it cannot be read."""
    try:
        return nodeset.expand(text)
    except ParseError:
        return None


def waits_for(run: Watched, is_to_queue: bool, is_beside: bool = False) -> str:
    """For what an act has to wait, as the end of a sentence; "" = for nothing. Somebody else's act, announced and
    without an outcome, may still be under way; one beside it need not wait.
    """
    if run.state.intents and run.quiet_s < QUIET_S and not is_beside:
        intent = run.state.intents[-1]
        return (f"; somebody has announced to {intent.act.replace('_', ' ')} (claim {intent.claim}): waiting for the "
                "outcome")
    refused = run.notes.refused if is_to_queue else ()
    if refused and run.quiet_s < min(MOST_REFUSED_S, REFUSED_S * 2 ** min(len(refused), 10)):
        return f"; sbatch refused that: {refused[-1]}"
    return ""


def waits_for_users_job(run: Watched) -> bool:
    """Whether a first job waits on what the user named, which is not ours to drop."""
    has_started = any(job.started_t is not None for job in run.state.jobs)
    return not has_started and "dependency" in dict(run.plan.sbatch)


def outline(jobs: Iterable[KnownJob]) -> str:
    """What must not change for jobs to count as hanging or stuck."""
    return ";".join(sorted(f"{job.id} {job.state} {job.nodelist} {can_never_start(job.reason)}"
                           for job in jobs if job.state not in jobstates.FINISHED))


def describe(job: KnownJob, since_s: float, step: int | None) -> str:
    """The PULSE of a running job; `since_s`: how long ago Slurm was asked."""
    at = f" (step {step})" if step is not None else ""
    return (f"is running for {render_elapsed(job.elapsed_s + since_s)} since {job.start or 'a moment ago'} on "
            f"{job.nodelist or '?'}{at}")
