"""What follows an attempt's end, and what is left for a person to do: one sentence.

It tells what safelaunch does, or has done, by the policy; the verdict's own advice is for the case that this was not
enough. Two sentences side by side contradicted each other ("to do: fix_config", and a restart).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from safelaunch.base.endings import AttemptEnd, RunEnd
from safelaunch.base.model import Request
from safelaunch.decide.budget.giveup import why_give_up
from safelaunch.decide.facts import advance
from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.plan import Plan
from safelaunch.why.categories import ENDS_OF_JOBS, TABLE
from safelaunch.why.fingerprint import UNEXPLAINED_KILL, UNEXPLAINED_TERM, UNEXPLAINED_USER

SAVE_SOONER = "let it save before its job ends, and load what it saved; or ask for more time (slurm.time)"
OF_A_KILL = "look for the kernel's memory killer on that node (dmesg -T), and at sacct's MaxRSS"


def what_follows(state: State, attempt: Attempt, plan: Plan, requests: Sequence[Request] = (),
                 partition: Collection[str] | None = None) -> str:
    """The sentence on an ended attempt, by the journal and by people's requests until now. `partition`: the nodes that
    the next job can be of, None = not known.
    """
    if attempt.ended == AttemptEnd.COMPLETED:
        return "nothing to do" if attempt.nan_end is None else f"to do: {TABLE['numerical'].to_do}"
    if_again = f"; if it comes back: {_to_do(attempt)}" if attempt.has_failed else ""
    following = next((one for one in state.attempts if one.number == attempt.number + 1), None)
    if following is not None:
        job = f", job {following.job}" if following.job != attempt.job else ""
        by = "restarted" if attempt.has_failed else "went on"
        earlier = [one for one in state.attempts if one.number < following.number]
        out = ", ".join(node for node in attempt.blamed if attempt.has_failed and node not in following.nodes)
        return (f"{by} by itself{_from(following, earlier)}{f', without {out}' if out else ''} "
                f"(attempt {following.number}{job}){if_again}")
    is_person = attempt.category == "cancelled" if state.ended is None else state.ended.how == RunEnd.STOPPED
    if attempt.ended == AttemptEnd.STOPPED or (is_person and attempt.ended != AttemptEnd.FAILED):
        return "not restarted: a person's request is final"
    if state.ended is not None or why_give_up(state, plan, partition=partition) is not None:
        return f"not restarted; to do: {_to_do(attempt)}"
    does = "restarts" if attempt.has_failed else "goes on"
    hold = next((request for request in requests if request.name == "hold"), None)
    if hold is not None:
        return f"{does} when its hold ends: {state.holder(hold.who)} put the run on hold (safelaunch resume){if_again}"
    return f"{does} by itself{if_again}"


def _to_do(attempt: Attempt) -> str:
    if attempt.fingerprint == UNEXPLAINED_KILL:
        return OF_A_KILL
    if attempt.fingerprint in UNEXPLAINED_USER:
        return "let the training handle that signal, or send it elsewhere (scancel -s, --signal)"
    if attempt.fingerprint == UNEXPLAINED_TERM:
        return "find out who sent it that signal: safelaunch and Slurm have not"
    if attempt.category in ENDS_OF_JOBS:
        return SAVE_SOONER
    row = TABLE.get(attempt.category or "")
    return row.to_do if row is not None and row.to_do else TABLE["unknown"].to_do


def _from(attempt: Attempt, earlier: Sequence[Attempt]) -> str:
    """Where it went on, by the checkpoint that it was told of, or by its first steps."""
    if attempt.resume_step is not None:
        return f" from step {attempt.resume_step}"
    if attempt.resume_path is not None:
        return f" from {attempt.resume_path}"
    began = advance.began_at(attempt, advance.trainings(earlier))
    if began is not None:
        return f", and went on at step {began}"
    return " from the start" if advance.begins_again(attempt, advance.trainings(earlier)) else ""
