"""What to do next. The first row of the table that fits says it: decide.turn.alive, decide.turn.between."""

from __future__ import annotations

from safelaunch.decide.budget import endless
from safelaunch.decide.facts.actions import Decision, HandOver
from safelaunch.decide.facts.seen import Observation
from safelaunch.decide.turn import alive, between
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan


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
