"""Whether a run is given up: by its budgets and proofs (decide.budget.budget), once no one node can be it any more."""

from __future__ import annotations

from collections.abc import Collection

from safelaunch.base.model import BUDGET_SPENT
from safelaunch.decide.budget import alone, budget
from safelaunch.decide.budget.budget import GiveUp
from safelaunch.decide.budget.policy import response
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan

# Rows of decide.budget.budget that judge by failures alike; the others have a reason that no other node changes.
BY_FAILURES = ("proven", "policy", "spent")


def why_give_up(state: State, plan: Plan, good: Collection[str] | None = None,
                partition: Collection[str] | None = None) -> GiveUp | None:
    """The reason to start nothing any more; None = go on, perhaps without a node (decide.budget.alone)."""
    reason = budget.reason_to_give_up(state, plan)
    if reason is None or not _is_by_failures(state, plan, reason):
        return reason
    if alone.way_without(state, plan, good, partition) is not None:
        return None
    return reason._replace(why=reason.why + alone.tell_no_way(state))


def has_to_move(state: State, plan: Plan, good: Collection[str], partition: Collection[str] | None) -> bool:
    """Whether the next job can do without the one node, and this one has no more to try: the run would be given up in
    it, or a third attempt before the first step would read the same text on the same nodes.
    """
    reason = budget.reason_to_give_up(state, plan)
    is_useless = alone.is_same_text(state) if reason is None else _is_by_failures(state, plan, reason)
    return is_useless and alone.way_without(state, plan, good, partition) == "next_job"


def _is_by_failures(state: State, plan: Plan, reason: GiveUp) -> bool:
    """Whether an attempt without one node may end otherwise. A person's own `stop` is obeyed."""
    row = response(plan, state.attempt.category if state.attempt is not None else None)
    is_own_stop = row.is_own and row.then == "stop"
    may_restart = state.restarts <= plan.restart.max_restarts   # a trial without a node is a restart, too
    return may_restart and reason.row in BY_FAILURES and reason.exit_code != BUDGET_SPENT and not is_own_stop
