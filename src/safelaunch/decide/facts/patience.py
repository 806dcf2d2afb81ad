"""How long a training that was asked to end has, and for what.

One that handles the signal saves and ends by itself, and has the whole grace. One that does not never hears of it:
1,235 more steps were made within 15 min. It ends with its next complete checkpoint, or soon where none can be
recognised.
"""

from __future__ import annotations

from typing import NamedTuple

from safelaunch.decide.facts.seen import Live, Observation
from safelaunch.run.plan import Plan

# What a scancel gives: slurm.conf(5), KillWait. Time for a training that watches $SAFELAUNCH_KILL_FILE.
DEAF_S = 30.0
# For one that heard the signal to end by itself, once its checkpoint is complete.
LEAVES_S = 30.0
AS_LONG_AS_IT_TAKES_S = 30 * 86400.0   # longer than any job


class Patience(NamedTuple):
    """Until when (epoch s) a training has time, and for what, in words that follow "waits for"."""

    until_t: float
    what: str
    is_checkpoint: bool = False   # its next complete checkpoint ends it before that


def judge(plan: Plan, row: str | None, asked_t: float, heard: int | None, request_t: float = 0.0) -> Patience:
    """The patience with an attempt that was asked to end by this row of decide.

    `heard`: processes that took the signal, None = nobody knows; `request_t`: the time of control/checkpoint, which a
    person can set ahead, as that of `extend`.
    """
    grace_s, can_tell = plan.kill_switch.grace_s, plan.resume.dir is not None
    if row == "slow_restart":   # nothing is worth a step there
        return Patience(asked_t + AS_LONG_AS_IT_TAKES_S, "its next complete checkpoint", True)
    if row == "checkpoint" and can_tell:
        until_t = request_t + grace_s   # by the file server's clock: one that is over already was never meant
        return Patience(until_t if until_t > asked_t else asked_t + grace_s, "its next complete checkpoint", True)
    if heard != 0 or row not in ("kill", "checkpoint", "restart"):
        return Patience(asked_t + grace_s, "it to save and end by itself")
    if can_tell:
        return Patience(asked_t + grace_s, "its next complete checkpoint, as no process of it takes the signal", True)
    return Patience(asked_t + min(grace_s, DEAF_S), "it to end by itself, as no process of it takes the signal")


def of(live: Live, facts: Observation, plan: Plan) -> Patience:
    """How long the attempt, which was asked to end, has for that."""
    request = facts.asked("checkpoint")
    return judge(plan, live.end_row, live.end_asked_t or facts.now, live.heard, request.t if request else 0.0)


def is_over(patience: Patience, now: float, heard: int | None, saved_t: float | None) -> bool:
    """Whether its time is up, or its checkpoint is there; `saved_t`: when that was found complete."""
    if now >= patience.until_t:
        return True
    return patience.is_checkpoint and saved_t is not None and now >= saved_t + (LEAVES_S if heard else 0.0)
