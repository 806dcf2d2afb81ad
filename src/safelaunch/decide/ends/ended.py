"""Whether an attempt is over, and the word for its end."""

from __future__ import annotations

from safelaunch.base.endings import BY_PERSON, GOOD_ENDS, AttemptEnd
from safelaunch.base.model import STOPS
from safelaunch.decide.facts.seen import Live, Observation

# After this long since the TERM there is no more to wait for: the fence finds out, node by node, what is left.
KILL_PATIENCE_S = 20.0
# Rows that end an attempt for want of a supervisor: no word against the training, or against a node that answers.
LEADERLESS = ("took_over", "unconfirmed")


def is_over(live: Live, facts: Observation) -> bool:
    """Every task that can still speak has ended, as guards or srun say; or nothing more can be done to end them."""
    if live.reported or (live.srun_code is not None and (live.srun_code == 0 or live.killed_t is not None)):
        return True
    if live.killed_t is None:
        return False
    lost = {node for node, _ in facts.lost}
    silent = sum(node in lost for node in live.nodes) * (live.tasks // max(1, len(live.nodes)))
    spoken = len({(exit.node, exit.task) for exit in live.exits if exit.node not in lost})
    return spoken >= live.tasks - silent or facts.now > live.killed_t + KILL_PATIENCE_S


def how_it_ended(live: Live, facts: Observation) -> AttemptEnd:
    """How an attempt ended.

    Exit code 0 counts only of a training that nobody told to end. One that watches the kill switch, or saves on Slurm's
    TERM at the time limit, ends well because of it, and is not complete.
    """
    asked_by_person = live.end_row in BY_PERSON or facts.asked(*STOPS) is not None
    # (simulated: test_found "a stop that only a dead leader's signal has told is no completion")
    never_knew = (live.end_row in ("checkpoint", "restart", "slow_restart") and live.heard == 0
                  and not live.may_have_heard and live.killed_t is None)
    is_planned = (live.end_row == "restart" and not never_knew) or (live.end_row == "slow_restart" and (
        live.saved_t is not None or (bool(live.heard) and live.hung is None)))
    job_ends = live.end_row in ("limit_near", "ending", *LEADERLESS) or is_planned or facts.ending is not None
    was_told = asked_by_person or job_ends or live.end_asked_t is not None or live.killed_t is not None
    if never_knew and _ended_well(live) and not (job_ends or facts.asked("kill-now", "kill")):
        was_told = asked_by_person = False   # it has come to its own end first
    ended_well = _ended_well(live) and not was_told
    if ended_well and live.reported:
        return AttemptEnd.COMPLETED   # every task has said so; what its node does afterwards takes nothing back
    if any(node in live.nodes for node, _ in facts.lost):
        return AttemptEnd.LOST
    if facts.suspended and not _ended_well(live):
        return AttemptEnd.INTERRUPTED   # the guards' fence ends ranks that stood still for longer than a lease
    if asked_by_person:
        return AttemptEnd.STOPPED
    if job_ends:
        return AttemptEnd.INTERRUPTED
    return AttemptEnd.COMPLETED if ended_well else AttemptEnd.FAILED


def of_hook(how: AttemptEnd) -> AttemptEnd:
    """The same of an attempt that has run before_resize: it completes no run, and a failure of it costs no budget."""
    return {**dict.fromkeys(GOOD_ENDS, AttemptEnd.CONVERTED), AttemptEnd.FAILED: AttemptEnd.UNCONVERTED}.get(how, how)


def _ended_well(live: Live) -> bool:
    """Every task said exit code 0, or srun did where the guards could not."""
    ends = {(exit.node, exit.task): exit.code for exit in live.exits}
    if any(ends.values()):
        return False
    return len(ends) >= live.tasks or live.srun_code == 0
