"""Which nodes an attempt, and the next job, may use."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from safelaunch.core import nodeset
from safelaunch.core.decide.seen import Observation
from safelaunch.core.ledger import most_excluded
from safelaunch.core.plan import Plan
from safelaunch.core.state import State

MAX_BARREN = 3   # jobs in a row that hand over without an attempt


def bad_nodes(state: State, seen: Observation) -> tuple[str, ...]:
    """Nodes that the next job must not use: those excluded, those that have failed their checks in this job, and
    whatever is lost now, evidence or not.
    """
    kept_out = () if begins_nothing(state) else state.excluded
    return tuple(sorted({*kept_out, *dict(state.unfit), *(node for node, _ in seen.lost)}))


def affordable(plan: Plan, state: State, wanted: Sequence[str], there: Collection[str] | None) -> tuple[str, ...]:
    """The nodes `wanted` out, as far as a job of the run can start without them: else what the ledger keeps out, else
    none. A supervisor that is cut off takes all others for lost, and the next job would wait for ever.

    `there`: all nodes of the partition, also those that are down today: Slurm itself keeps these out. Where it does not
    say (None, or none), no more are excluded than the ledger may: those met just now first, then the newest evidence.
    """
    if not there:
        age = {known.node: number for number, known in enumerate(reversed(state.exclusions), 1)}
        newest = sorted(wanted, key=lambda node: age.get(node, 0))
        return tuple(newest[:most_excluded(plan.suspects, plan.nodes, plan.spare_nodes)])
    left = set(there) - set(nodeset.expand_own(dict(plan.sbatch).get("exclude")))
    rooms = ((allowed, len(left - set(allowed))) for allowed in (tuple(wanted), state.excluded))
    return next((allowed for allowed, room in rooms if room >= plan.allocated_nodes), ())


def begins_nothing(state: State) -> bool:
    """Whether the last three jobs, this one included, have launched nothing: then their nodes must do (simulated:
    test_found "hosts whose clocks are hours apart pass the run from job to job only so often"). A job that was requeued
    counts again (simulated: test_found "a requeued job whose nodes fail their checks in turn ends").
    """
    last = state.lives[-MAX_BARREN:]
    return len(last) == MAX_BARREN and last[0][2] == len(state.attempts)


def good_nodes(state: State, seen: Observation) -> tuple[str, ...]:
    """The allocation's nodes that are neither lost nor excluded, in Slurm's order; suspects that no job of the run can
    do without come last, so that a spare takes their place.
    """
    bad, doubted = set(bad_nodes(state, seen)), dict(state.left_out)
    return tuple(sorted((node for node in seen.nodes if node not in bad), key=lambda node: node in doubted))
