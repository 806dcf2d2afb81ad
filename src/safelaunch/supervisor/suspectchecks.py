"""Full checks of suspects after a failure, beside the next attempt, which does not use them: no restart waits for this.

A node that passes stays a suspect: many faults come and go, and a check of minutes is no training of hours.
"""

from __future__ import annotations

from safelaunch.core import nodefold
from safelaunch.core.decide.checks import BEFORE, BESIDE, suspects_beside
from safelaunch.node.checks.answer import DEADLINE_S, FULL
from safelaunch.supervisor import bootchecks
from safelaunch.supervisor.bootchecks import STARTS_S, CheckRound
from safelaunch.supervisor.inspection import SETTLED_S
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.tasks import Step

POLL_S = 0.5


def check(lead: Leader, number: int) -> Step:
    """Check the nodes that the failure before attempt `number` blames and that nobody uses now, once it runs."""
    failed = next((one for one in lead.state.attempts if one.number == number - 1), None)
    if lead.plan.checks.after_failure not in (BESIDE, BEFORE) or failed is None or not failed.has_failed:
        return
    yield SETTLED_S
    live = lead.live
    if failed.job != lead.job.id or live is None or live.number != number or lead.tasks.is_leaving:
        return
    nodes = suspects_beside(lead.nodes.blamed_by(lead.plan.run_id, failed.number), lead.job.nodes, live.nodes,
                            dict(lead.reach.lost))
    if not nodes:
        return
    asking = CheckRound(FULL, DEADLINE_S[FULL], failed.number, failed.number, "checks-after.json")
    lead.say(f"checking {nodefold.fold(nodes)} fully beside attempt {number}, which does not use "
             f"{'it' if len(nodes) == 1 else 'them'}")
    if lead.nodes.no_overlap is not None:
        bootchecks.take_in(lead, asking, bootchecks.nobody(nodes, lead.nodes.no_overlap))
        return
    until_s = lead.now_s + asking.limit_s + 2 * STARTS_S
    asked = bootchecks.ask(lead, nodes, FULL, asking.limit_s)
    while not (is_done := asked.poll()) and lead.now_s < until_s and _may_go_on(lead, nodes):
        yield POLL_S
    asked.stop()
    if is_done or _may_go_on(lead, nodes):   # else it was broken off, and says nothing
        bootchecks.take_in(lead, asking, asked.checked())
    end_s = lead.now_s + STARTS_S
    while not asked.poll() and lead.now_s < end_s:   # helpers that were stopped are this one's children
        yield POLL_S


def _may_go_on(lead: Leader, nodes: tuple[str, ...]) -> bool:
    """Whether the job goes on, and no attempt wants one of the nodes."""
    return not lead.tasks.is_leaving and (lead.live is None or not set(nodes) & set(lead.live.nodes))
