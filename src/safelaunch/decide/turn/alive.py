"""The rows for a living attempt, in order; each names the incident or the law it stands for."""

from __future__ import annotations

from safelaunch.base.endings import GIVES_WAY, tell_ending
from safelaunch.decide.ends import ended
from safelaunch.decide.facts import patience
from safelaunch.decide.facts.actions import FAILED_GRACE_S, Action, AskToEnd, Fence, Kill, Row
from safelaunch.decide.facts.seen import Observation
from safelaunch.decide.nodes import slowness
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan

ASKING = ("kill", "checkpoint", "restart", "limit_near", "slow_restart")   # rows that ask gently first


def _over(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Nothing restarts before the old attempt is fenced (two writers were seen after a slurmd was killed)."""
    live = facts.attempt
    return Fence("every task of the attempt has ended") if ended.is_over(live, facts) and not live.fenced else None


def _unconfirmed(state: State, facts: Observation, plan: Plan) -> Action | None:
    """A supervisor that has taken over waits for a lease, then starts its own attempt: be gone by then, at once."""
    if not facts.unconfirmed or facts.attempt.killed_t is not None:
        return None
    return Kill(0.0, f"for {plan.lease_s:.0f} s neither run folder nor standby has answered: it may lead by now")


def _srun_gone(state: State, facts: Observation, plan: Plan) -> Action | None:
    """srun can end before its tasks do: killed, or told to by scancel while ranks ignore TERM."""
    live = facts.attempt
    if live.srun_code is None or live.reported or live.killed_t is not None:
        return None
    return Kill(FAILED_GRACE_S, f"srun has ended with exit code {live.srun_code}, and not every task with it")


def _kill_now(state: State, facts: Observation, plan: Plan) -> Action | None:
    """The only person who could stop a job was asleep: any member of the group can, at once."""
    asked = facts.asked("kill-now")
    if asked is None or facts.attempt.killed_t is not None:
        return None
    return Kill(0.0, f"{asked.who} touched kill-now")


def _lost_progress(state: State, facts: Observation, plan: Plan) -> Action | None:
    """A training that has not loaded its checkpoint overwrites the newer ones, or prunes them: end it before its next
    save. At once: upon a TERM many trainings save, and what it has is older.
    """
    live = facts.attempt
    if live.lost is None or live.killed_t is not None or plan.restart.on_lost_progress != "stop":
        return None
    return Kill(0.0, live.lost)


def _nan(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Every further step is for nothing. At once: upon a TERM many trainings save, and their weights are no numbers."""
    live = facts.attempt
    found = state.had_nan(live.number)
    if found is None or live.killed_t is not None or plan.on_nan not in ("stop", "previous_checkpoint"):
        return None
    return Kill(0.0, f"the loss is {found.value} since step {found.step} (on_nan: {plan.on_nan})")


def _grace_over(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Asked gently, and the time is up."""
    live = facts.attempt
    if live.end_asked_t is None or live.killed_t is not None:
        return None
    if not patience.is_over(patience.of(live, facts, plan), facts.now, live.heard, live.saved_t):
        return None
    if live.end_row == "slow_restart" and not slowness.is_wanted_still(state, facts):
        return None   # a training that goes on is worth more
    if live.saved_t is not None:
        return Kill(FAILED_GRACE_S, f"its next checkpoint is complete: {live.saved}")
    return Kill(FAILED_GRACE_S, f"still running {facts.now - live.end_asked_t:.0f} s after it was asked to end")


def _kill(state: State, facts: Observation, plan: Plan) -> Action | None:
    """The kill switch: gently first; it overrules a wait for a checkpoint."""
    asked = facts.asked("kill")
    if asked is None or not _may_ask(facts, "kill"):
        return None
    return _ask(facts, plan, f"{asked.who} touched the kill switch")


def _checkpoint(state: State, facts: Observation, plan: Plan) -> Action | None:
    """`stop --checkpoint`: no step is to be lost; the signal asks for a checkpoint where a process takes it."""
    asked = facts.asked("checkpoint")
    if asked is None or not _may_ask(facts, "checkpoint"):
        return None
    return _ask(facts, plan, f"{asked.who} wants it to stop at its next checkpoint")


def _restart(state: State, facts: Observation, plan: Plan) -> Action | None:
    """`safelaunch restart`: a person has mended the code. It saves if it listens, and the next attempt costs no budget.
    """
    asked, live = state.restart, facts.attempt
    if asked is None or live.is_hook or live.failed:
        return None
    why = f"{asked.who} wants the next attempt now"
    if asked.name == "restart-now":
        return None if live.killed_t is not None else Kill(FAILED_GRACE_S, why)
    return _ask(facts, plan, why) if _may_ask(facts, "restart") else None


def _ending(state: State, facts: Observation, plan: Plan) -> Action | None:
    """Slurm is ending the job: it kills at KillWait, so be first and leave a whole journal."""
    if facts.ending is None or facts.attempt.killed_t is not None:
        return None
    return Kill(FAILED_GRACE_S, f"the job is being ended: {tell_ending(facts.ending)}")


def _limit_near(state: State, facts: Observation, plan: Plan) -> Action | None:
    """The time limit comes: ask for a checkpoint and go on in the successor, at no cost to the budget."""
    if not facts.limit_near or not _may_ask(facts, "limit_near"):
        return None
    return _ask(facts, plan, "the job's time limit is near")


def _slow_restart(state: State, facts: Observation, plan: Plan) -> Action | None:
    """One node slower by 2.5 % cost a 176B training 5 % of its speed, and a weekend of restarts by hand. So there is a
    planned stop, at a fresh checkpoint, with its price.
    """
    if facts.ending is not None or facts.limit_near or facts.attempt.is_hook or not _may_ask(facts, "slow_restart"):
        return None
    why = slowness.why_experiment(state, facts, plan)
    return None if why is None else AskToEnd(plan.kill_switch.signal, why)


def _ask(facts: Observation, plan: Plan, why: str) -> Action:
    """A signal where that can help: before_resize has nothing to save."""
    return Kill(FAILED_GRACE_S, why) if facts.attempt.is_hook else AskToEnd(plan.kill_switch.signal, why)


def _may_ask(facts: Observation, row: str) -> bool:
    """Whether a row may ask the attempt to end: nobody has, or one that gives way to it."""
    live = facts.attempt
    if live.killed_t is not None:
        return False
    return live.end_row is None or row in GIVES_WAY.get(live.end_row, ())


def _hook_late(state: State, facts: Observation, plan: Plan) -> Action | None:
    """before_resize is a part of the start. To convert 176B took 48 minutes; a conversion that hangs never ends."""
    live, limit_s = facts.attempt, plan.hang.first_step_s
    if not live.is_hook or live.killed_t is not None or facts.ran_s <= limit_s:
        return None
    return Kill(FAILED_GRACE_S, f"before_resize has taken more than {limit_s:.0f} s (hang.first_step)")


def _node_lost(state: State, facts: Observation, plan: Plan) -> Action | None:
    """A silent node holds every collective, and Slurm notices after 300 s only (440 s measured)."""
    live = facts.attempt
    gone = [(node, why) for node, why in facts.lost if node in live.nodes]
    if not gone or live.killed_t is not None:
        return None
    return Kill(FAILED_GRACE_S, "; ".join(f"{node} is lost: {why}" for node, why in gone))


def _hung(state: State, facts: Observation, plan: Plan) -> Action | None:
    """35 h were lost to hangs that nobody noticed; ended when silence and the ranks agree (supervisor.hang.hangs)."""
    live = facts.attempt
    if live.hung is None or live.killed_t is not None:
        return None
    return Kill(FAILED_GRACE_S, f"the attempt hangs: {live.hung}")


def _step_stuck(state: State, facts: Observation, plan: Plan) -> Action | None:
    """srun said each minute that the nodes are busy; nobody read it until the hang check after an hour."""
    live = facts.attempt
    return None if live.stuck is None or live.killed_t is not None else Kill(FAILED_GRACE_S, live.stuck)


def _task_failed(state: State, facts: Observation, plan: Plan) -> Action | None:
    """One rank died: the others wait in a collective for ever (NCCL time-outs are 10-30 min); end them now, or after
    srun.wait. A rank that ends well ends nobody: another may still export the model, for longer than any limit.
    """
    live, srun = facts.attempt, plan.srun
    if not live.failed or live.killed_t is not None or not (srun.kill_on_bad_exit or srun.wait_s):
        return None
    if not srun.kill_on_bad_exit and facts.now < (live.failed_t or facts.now) + (srun.wait_s or 0):
        return None
    first = next((exit for exit in live.exits if exit.code), None)
    return Kill(FAILED_GRACE_S, first.text if first else f"srun ended with exit code {live.srun_code}")


ALIVE: tuple[Row, ...] = (
    _over, _kill_now, _unconfirmed, _lost_progress, _nan, _srun_gone, _grace_over, _node_lost, _task_failed, _kill,
    _checkpoint, _restart, _hung, _step_stuck, _hook_late, _ending, _limit_near, _slow_restart,
)
