"""Bounds on what costs no budget: jobs that end by their time limit, by preemption, or by a hand over.

A training that came nowhere in a job comes nowhere in the next one: a `sleep` went on at each time limit without end.
- Two jobs in a row without progress that had their time: the run gives up, where its log or its checkpoints could have
  shown progress. Where nothing has ever been seen of it (an inference server, lines that are not read), a person is
  asked: the run is held. Who has set a bound on jobs or hours has answered that.
- A job that was preempted soon after its start is not to blame: the next one waits for longer each time. After
  MOST_IDLE such jobs in a row the run is held.
"""

from __future__ import annotations

from typing import NamedTuple

from safelaunch.base.endings import AttemptEnd, RunEnd, tell_ending
from safelaunch.base.model import BUDGET_SPENT, FAILED_FOR_GOOD
from safelaunch.decide.facts.actions import Finish, Hold
from safelaunch.decide.facts.advance import has_steps, trainings
from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.plan import Plan
from safelaunch.script.script import warn_before_s
from safelaunch.slurm.slurmtext import render_elapsed

MOST_TURNS = 2         # jobs in a row that had their time, and made no progress
MOST_IDLE = 10         # ... and those with them that had none
TURN_S = 1800.0        # an attempt that lived for so long had its time, whatever ended its job
MAX_PAUSE_S = 3600.0   # before the next job of a run that is preempted again and again
LEFT_SHARE = 0.1       # of restart.max_time: less is no time for another job


class IdleJob(NamedTuple):
    """A job that ended at no cost, and brought nothing; `last`: its last attempt, None = it launched none."""

    id: str
    last: Attempt | None

    @property
    def had_its_time(self) -> bool:
        """Whether the training could have come somewhere."""
        last = self.last
        if last is None:
            return False
        return last.has_had_its_time or (last.ended_t or last.started_t) - last.started_t >= TURN_S


def judge(state: State, plan: Plan, *, is_ending: bool) -> Finish | Hold | None:
    """What follows from jobs in a row without progress; `is_ending`: the present one is at its end."""
    idle = idle_jobs(state, plan, is_ending=is_ending)
    turns = [job for job in idle if job.had_its_time]
    is_seen = has_steps(state) or state.best_step is not None
    is_bounded = plan.restart.max_jobs is not None or plan.restart.max_time_s is not None
    if len(turns) < MOST_TURNS and len(idle) < MOST_IDLE:
        return None
    if len(turns) < MOST_TURNS:
        return Hold(f"{len(idle)} jobs in a row ended before the training got anywhere (the last one: "
                    f"{_why_ended(idle[-1])})")
    shown = ", ".join(job.id for job in turns[-MOST_TURNS:])
    if not is_seen:
        return None if is_bounded else Hold(
            f"jobs {shown} ended, and no step and no checkpoint of the training has ever been seen: whether it comes "
            "further is not known. See whether its steps are read (progress.step) and where it saves (resume.dir); to "
            "let such a run go on by itself: restart.max_jobs, restart.max_time")
    why = f"jobs {shown} ended without progress (the last one: {_why_ended(turns[-1])}): {_nothing(state, plan)}"
    if not all(job.last is not None and job.last.has_had_its_time for job in turns[-MOST_TURNS:]):
        return Hold(why)
    to_do = "it needs a longer slurm.time, or has to save sooner and to load what it saved"
    return Finish(RunEnd.GAVE_UP, FAILED_FOR_GOOD, f"{why}; {to_do}")


def idle_jobs(state: State, plan: Plan, *, is_ending: bool) -> tuple[IdleJob, ...]:
    """Those that ended free of budget since the last progress; the present one only where it is at its end."""
    found = []
    for number in range(state.idle_from, len(state.lives) - (not is_ending)):
        job, _, first = state.lives[number]
        end = state.lives[number + 1][2] if number + 1 < len(state.lives) else len(state.attempts)
        last = next(iter(trainings(state.attempts[first:end])[-1:]), None)
        if last is None and first == end and (state.attempts or not plan.after):
            found.append(IdleJob(job, None))
        elif last is not None and last.ended == AttemptEnd.INTERRUPTED and last.asked_row != "restart":
            found.append(IdleJob(job, last))
    return tuple(found)


def pause_s(state: State, plan: Plan) -> float:
    """How long the next job waits behind one that was taken from the run soon after its start; 0 = not at all."""
    idle = idle_jobs(state, plan, is_ending=True)
    if len(idle) < 2 or any(job.last is None or job.had_its_time for job in idle[-2:]):
        return 0.0
    return float(min(MAX_PAUSE_S, plan.restart.backoff_s * 2 ** min(len(idle) - 2, 6)))


def why_no_job(state: State, plan: Plan, now: float) -> Finish | None:
    """Why the run may not have another job: it has had all that it may have, or its time is used."""
    return _jobs_used(plan) if is_last_job(state, plan) else why_no_attempt(state, plan, now)


def why_no_attempt(state: State, plan: Plan, now: float) -> Finish | None:
    """Why this job may not even launch another attempt: it is one too many, or the run's time is used."""
    left_s = time_left_s(state, plan, now)
    if left_s is not None and left_s <= warn_s(plan):
        return Finish(RunEnd.GAVE_UP, BUDGET_SPENT, "the time of the run is used: its jobs ran for "
                      f"{render_elapsed(used_s(state, now))} together (restart.max_time: "
                      f"{render_elapsed(plan.restart.max_time_s or 0.0)})")
    return _jobs_used(plan) if is_last_job(state, plan, more=-1) else None


def is_last_job(state: State, plan: Plan, more: int = 0) -> bool:
    """Whether the run may have no job behind the present one, and `more`."""
    return plan.restart.max_jobs is not None and len(state.lives) + more >= plan.restart.max_jobs


def _jobs_used(plan: Plan) -> Finish:
    most = plan.restart.max_jobs
    jobs = "the one job that the run may have is" if most == 1 else f"all {most} jobs that the run may have are"
    return Finish(RunEnd.GAVE_UP, BUDGET_SPENT, f"{jobs} used (restart.max_jobs)")


def used_s(state: State, now: float) -> float:
    """For how long the run's jobs have run, together."""
    return state.used_s + (max(0.0, now - state.life_t) if state.life_t is not None else 0.0)


def time_left_s(state: State, plan: Plan, now: float) -> float | None:
    """Of restart.max_time; None = it is not set."""
    return None if plan.restart.max_time_s is None else plan.restart.max_time_s - used_s(state, now)


def warn_s(plan: Plan) -> float:
    """Before the end of restart.max_time the training is asked to save and end, as before the time limit."""
    return min(float(warn_before_s(plan)), LEFT_SHARE * (plan.restart.max_time_s or 0.0))


def _why_ended(job: IdleJob) -> str:
    if job.last is None:
        return "it launched nothing"
    return job.last.summary or tell_ending(None)


def _nothing(state: State, plan: Plan) -> str:
    """What has not come, and how far the run was."""
    steps = [one.step for one in state.attempts if one.step is not None]
    if state.best_step is not None:
        return f"no checkpoint beyond step {state.best_step}"
    step = f"no step beyond {max(steps)}" if steps else "no further step"
    if plan.resume.dir is None:
        return f"{step}, and no checkpoint folder is known (resume.dir)"
    return f"no complete checkpoint in {plan.resume.dir}, without which a step is lost ({step})"
