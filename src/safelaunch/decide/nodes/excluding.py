"""Which nodes of a run become excluded or usable again by the evidence of now, compared with its journal."""

from __future__ import annotations

from typing import NamedTuple

from safelaunch.base.model import NewEvent
from safelaunch.nodehealth.ledger import NodeEvidence, exclusions, most_excluded, needed, why_readmitted
from safelaunch.nodehealth.ledgerlines import node_excluded
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from safelaunch.slurm.excludelist import asked_nodes


class KnownNodes(NamedTuple):
    """What a supervisor knows of its job's nodes and of those beside them. None = not known."""

    job: tuple[str, ...]                            # of the allocation
    evidence: tuple[NodeEvidence, ...] = ()         # against nodes, of this run and of others
    partition: tuple[str, ...] | None = None        # all nodes of the job's partition
    available: tuple[str, ...] | None = None        # those that a job of this run can get
    partition_name: str = ""


def changes(state: State, plan: Plan, known: KnownNodes, now: float) -> tuple[NewEvent, ...]:
    """The events for nodes newly excluded or readmitted."""
    there = None if known.partition is None else {*known.partition, *known.job}
    asked = asked_nodes(plan.sbatch)
    now_out = {one.node: one for one in exclusions(
        known.evidence, now, plan.suspects, nodes=plan.nodes, spares=plan.spare_nodes, run=plan.run_id, among=there,
        available=known.available, asked=asked, replaced=plan.spare_nodes)}
    # (simulated: test_found "a dead node that comes back is not kept out of the next job for ever")
    while now_out and known.partition is not None and (
            len(set(known.partition) - now_out.keys()) < plan.allocated_nodes):
        now_out.popitem()
    most = most_excluded(plan.suspects, plan.nodes, plan.spare_nodes)
    before, left_out = set(state.excluded), dict(state.left_out)
    used = {} if there is None else needed(known.evidence, now, plan.suspects, now_out, most, there - asked)
    # Said once, also of readmitted nodes that could not be excluded.
    no_more = sorted({*before, *left_out.keys() & (there or set())} - now_out.keys() - used.keys())
    gone = [_left_out(node, _no_such_node(known.partition_name)) if there and node not in there else
            NewEvent("node_readmitted", {"node": node, "why": why_readmitted(
                known.evidence, node, now, plan.suspects, is_full=len(now_out) >= most)})
            for node in no_more]
    return (*gone, *(_left_out(node, why) for node, why in used.items() if node not in left_out),
            *(NewEvent("node_excluded", node_excluded(one)) for node, one in now_out.items() if node not in before))


def _left_out(node: str, why: str) -> NewEvent:
    return NewEvent("node_left_out", {"node": node, "why": why})


def _no_such_node(partition: str) -> str:
    return f"under suspicion, but {f'partition {partition}' if partition else 'this cluster'} has no such node"
