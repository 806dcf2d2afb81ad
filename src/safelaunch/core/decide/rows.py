"""What to do next. The first row of the table that fits says it: core.decide.alive, core.decide.between."""

from __future__ import annotations

from safelaunch.core.decide import alive, between, endless
from safelaunch.core.decide.actions import Decision, HandOver
from safelaunch.core.decide.seen import Observation
from safelaunch.core.plan import Plan
from safelaunch.core.state import State


def decide(state: State, facts: Observation, plan: Plan) -> Decision:
    """The first opinion of the table that fits: attempt alive, or none."""
    rows = alive.ALIVE if facts.live is not None else between.BETWEEN
    for row in rows:
        action = row(state, facts, plan)
        if isinstance(action, HandOver) and not action.held:
            action = endless.why_no_job(state, plan, facts.now) or action
        if action is not None:
            return Decision(row.__name__.strip("_"), action)
    return Decision("watch", None)
