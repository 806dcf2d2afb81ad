"""The state of a run in one word and one sentence, and what to type next.

Two witnesses are heard, the journal and the scheduler. Where they do not agree, the answer is "unknown" with what each
of them says; it is never "dead". What people have asked for in control/ counts from the touch on, also before the
supervisor has seen it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from safelaunch.base.endings import BY_PERSON, ENDED_BY, RUN_ENDED, AttemptEnd
from safelaunch.base.model import STOPS, Request
from safelaunch.base.plaintext import clean
from safelaunch.run.fold.state import Attempt, Ended, State
from safelaunch.slurm import jobstates, via
from safelaunch.slurm.queuereasons import in_words
from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.status.speech import SchedulerAnswer, Speech

RUNNING, STOPPING, ENDING, ON_HOLD, WAITING = "running", "stopping", "ending", "on_hold", "waiting"


class RunCondition(NamedTuple):
    """The state's name, a sentence on it, and since when where the journal's own states do not tell."""

    name: str
    sentence: str
    since_t: float | None = None


def judge(
    state: State, slurm_answer: SchedulerAnswer, speech: Speech, now: float, requests: Sequence[Request] = (),
    grace_s: float = 0.0,
    is_local: bool = False,
) -> RunCondition:
    """The state from both witnesses and what was asked for; `grace_s` is the kill switch's."""
    if state.ended is not None:
        return RunCondition(state.ended.how, describe_end(state.ended))
    plain = _judge_jobs(state, slurm_answer, speech, now, "this machine" if is_local else "Slurm")
    attempt = state.attempt
    if plain.name == RUNNING and attempt is not None:
        return _asked_to_end(state, attempt, speech, now, requests, grace_s, _limit_t(state, slurm_answer, now)) or (
            _completing(plain, state, slurm_answer))
    hold = next((request for request in requests if request.name == "hold"), None)
    if hold is not None and plain.name in ("queued", WAITING, "starting", "restarting"):
        because = f" ({state.held})" if state.held else ""
        return RunCondition(ON_HOLD, f"{state.holder(hold.who)} put the run on hold{because}: nothing new is started "
                                     f"until it is resumed; {plain.sentence}", hold.t)
    return plain


def describe_end(ended: Ended) -> str:
    """How a run ended, in one line."""
    word = RUN_ENDED.get(ended.how, ended.how)
    is_said = re.search(rf"exit code {ended.exit_code}\b", ended.why)
    code = "" if is_said else f" (exit code {ended.exit_code})"
    return clean(f"the run {word}: {ended.why}{code}")


def describe_alone(job: str, exit_code: int) -> str:
    """How a job ended that had no supervisor any more."""
    return f"job {job} has ended with exit code {exit_code}, and without a supervisor that could restart it"


def _judge_jobs(state: State, slurm_answer: SchedulerAnswer, speech: Speech, now: float, by: str) -> RunCondition:
    """From the journal's state, and what the scheduler says of the run's jobs."""
    name, job = state.name, state.job
    told = _by_journal(state, speech, now)
    if slurm_answer.jobs is None:
        return RunCondition(name, told)
    if not slurm_answer.jobs:
        if job is None:
            return RunCondition("unknown",
                                f"a submission was begun and has no outcome, and {by} knows no job of this run")
        if state.failed_alone is not None:
            return RunCondition("unknown", f"{describe_alone(*state.failed_alone)}; {by} knows no job that would go on")
        return RunCondition("unknown", f"{by} no longer knows job {job.id}, and the journal has no end: no job goes on "
                                       "with the run")
    first = slurm_answer.jobs[0]
    if job is None:
        return RunCondition("queued", f"job {first.id} is in ({_waits(first)}), though its submission was cut off")
    known = slurm_answer.job(job.id)
    if known is None:
        return RunCondition(WAITING, f"job {job.id} is over; the run goes on in job {first.id}, which {_waits(first)}",
                            _ended_t(state))
    if known.state not in (jobstates.RUNNING, jobstates.PENDING):
        return RunCondition(name, f"{told}; job {known.id} is {known.state} for Slurm")
    if job.started_t is None:
        return RunCondition(name, f"job {known.id} {_waits(known)}")
    if known.state == jobstates.PENDING:   # it was requeued
        return RunCondition(WAITING, f"job {known.id} {_waits(known)}", _ended_t(state))
    return RunCondition(name, told)


def _ended_t(state: State) -> float | None:
    return state.attempt.ended_t if state.attempt is not None else None


def _waits(job: QueuedJob) -> str:
    if job.state == jobstates.PENDING:
        return f"is waiting to be scheduled ({in_words(job.reason)})"
    if job.state == jobstates.RUNNING:
        return "has started; its supervisor has not reported yet"
    return f"is {job.state} for Slurm"


def _by_journal(state: State, speech: Speech, now: float) -> str:
    job, attempt = state.job, state.attempt
    where = f"job {job.id}" if job else "no job yet"
    if state.name == RUNNING and attempt is not None:
        if attempt.resize is not None:
            return (f"attempt {attempt.number} converts the checkpoint for {attempt.resize.to_nodes} nodes, on "
                    f"{speech.nodes(attempt.nodes)} ({where})")
        return f"attempt {attempt.number} is running on {speech.nodes(attempt.nodes)} ({where})"
    if state.name == "preserving":
        return f"the run has failed and its nodes are kept for people to look at ({where})"
    if state.name == "restarting" and attempt is not None and attempt.ended == AttemptEnd.COMPLETED:
        return f"attempt {attempt.number} is over ({attempt.ended}), the run's end is being written ({where})"
    if state.name == "restarting" and attempt is not None:
        is_past = state.pause_until is not None and state.pause_until <= now
        next_one = f"; {state.pause}" if state.pause and not is_past else ", the next one is being prepared"
        return f"attempt {attempt.number} is over ({attempt.ended}){next_one} ({where})"
    if state.name == "starting":
        return f"{where} has started, {state.pause or 'the first attempt is being prepared'}"
    return f"{where} is submitted and has not reported yet" if job else "the submission has no outcome yet"


def _asked_to_end(
    state: State, attempt: Attempt, speech: Speech, now: float, requests: Sequence[Request], grace_s: float,
    limit_t: float | None,
) -> RunCondition | None:
    """The state of an attempt that somebody, or the supervisor, wants to end; None = nobody does. No time is promised
    behind the job's own end, `limit_t`.
    """
    asked = next((request for name in STOPS for request in requests if request.name == name), None)
    if asked is not None or attempt.asked_row in BY_PERSON:
        who = asked.who if asked is not None else state.kill_who or "somebody"
        since_t = min(asked.t, attempt.asked_t or now) if asked is not None else attempt.asked_t or now
        if attempt.asked_row == "kill_now" or (asked is not None and asked.name == "kill-now"):
            return RunCondition(STOPPING,
                                f"{who} touched kill-now: attempt {attempt.number} is being killed, and nothing "
                                    "is restarted", since_t)
        at_checkpoint = asked.name == "checkpoint" if asked is not None else attempt.asked_row == "checkpoint"
        until = attempt.end_by_t or (attempt.asked_t or since_t) + grace_s
        if asked is not None and at_checkpoint:   # whose time can be set anew
            until = max(until, asked.t + grace_s)
        until = until if limit_t is None else min(until, limit_t)
        left = f"{speech.span(until - now)} left" if until > now else "the time is up"
        wish = "wants it to stop at its next checkpoint" if at_checkpoint else "touched kill"
        what = attempt.waits_for or ("its next checkpoint" if at_checkpoint else "it to save and end by itself")
        return RunCondition(STOPPING,
                            f"{who} {wish}: waiting for {what}, until {speech.clock(until)} at most ({left}); then "
                                f"attempt {attempt.number} is killed, and nothing is restarted", since_t)
    if not (why := why_ending(attempt)):
        return None
    return RunCondition(ENDING, f"attempt {attempt.number} is being ended: {why}", attempt.asked_t)


def why_ending(attempt: Attempt) -> str:
    """Why somebody ends it; "" = nobody does."""
    row = attempt.asked_row or ""
    if attempt.asked_t is None:
        return ""
    return "a person wants it" if row in BY_PERSON else ENDED_BY.get(row, row.replace("_", " "))


def _limit_t(state: State, slurm_answer: SchedulerAnswer, now: float) -> float | None:
    """When the job's time limit ends it, as far as Slurm says."""
    known = slurm_answer.job(state.job.id if state.job else None)
    asked_t = now if slurm_answer.asked_t is None else slurm_answer.asked_t
    return None if known is None or known.left_s is None else asked_t + known.left_s


def _completing(plain: RunCondition, state: State, slurm_answer: SchedulerAnswer) -> RunCondition:
    """Slurm ends the job of an attempt that the journal still calls alive."""
    known = slurm_answer.job(state.job.id if state.job else None)
    return RunCondition(ENDING, plain.sentence) if known is not None and known.state == jobstates.COMPLETING else plain


# --- what to type next ----------------------------------------------------------------------------------------------


def is_silent(one: Mapping[str, Any]) -> bool:
    """Whether silence is all that is to be said of it: nobody ends it, and Slurm knows its job."""
    return one["state"] == RUNNING and one.get("silence") is not None


def next_lines(seen: Mapping[str, Any]) -> list[str]:
    """The commands, the most useful first. Where something is wrong, that is what says what it is."""
    where = seen["run_dir"]
    if seen["preserving_until_t"] is not None:
        host = (seen["job"] or {}).get("batch_host") or "NODE"
        return [f"safelaunch shell {where} {host}", f"safelaunch release {where}"]
    if seen["state"] == "gave_up":
        return [f"safelaunch why {where}", f"safelaunch events {where}"]
    if seen["state"] in ("completed", "stopped", "unknown"):
        is_lost = seen["state"] == "unknown" and via.has_next_job(seen["cluster"])
        is_doubtful = seen["state"] == "completed" and (seen["ended_nan"] or seen["ended_early"])
        first = ["safelaunch watch --once"] if is_lost else [f"safelaunch why {where}"] if is_doubtful else []
        return [*first, f"safelaunch events {where}"]
    if seen["state"] == "on_hold":
        return [f"safelaunch resume {where}"]
    if seen["state"] in ("queued", "waiting", "submitting", "stopping"):
        return [f"safelaunch status --watch {where}"]
    return [*_of_living(seen), f"safelaunch logs -f {where}"]


def _of_living(seen: Mapping[str, Any]) -> list[str]:
    where, attempt = seen["run_dir"], seen["attempt"]
    if is_silent(seen):
        return [f"safelaunch stacks {where}"]
    is_stale = seen["pulse"] is not None and seen["pulse"]["is_stale"] and seen["cluster"] != "local"
    lines = ["safelaunch watch --once"] if is_stale else []
    number = None if attempt is None else attempt["number"]
    has_nan = any(one["attempt"] == number for one in seen["odd_figures"])
    if has_nan or seen["state"] in (ENDING, "restarting") or (number or 0) > 1:   # or another attempt failed before it
        return [*lines, f"safelaunch why {where}"]
    if seen["slower"] is not None:   # the ranks that the others wait for
        return [*lines, f"safelaunch stacks {where}"]
    return lines
