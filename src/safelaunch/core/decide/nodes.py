"""Which nodes an attempt, and the next job, may use."""

from __future__ import annotations

from safelaunch.core.decide.seen import Seen
from safelaunch.core.state import State

MAX_BARREN = 3   # jobs in a row that hand over without an attempt


def bad_nodes(state: State, seen: Seen) -> tuple[str, ...]:
    """Nodes that the next job must not use: those kept out, and whatever is lost now, evidence or not."""
    kept_out = () if _begins_nothing(state) else state.excluded
    return tuple(sorted({*kept_out, *(node for node, _ in seen.lost)}))


def _begins_nothing(state: State) -> bool:
    """Whether the last three jobs, this one included, have launched nothing: then what they get must do.

    Simulated: two hosts whose clocks were hours apart disagreed on which node to keep out, and the run went from one
    job to the next each three seconds, for ever.
    """
    last = [job.id for job in state.jobs if job.started_t is not None][-MAX_BARREN:]
    return len(last) == MAX_BARREN and not any(attempt.job in last for attempt in state.attempts)


def good_nodes(state: State, seen: Seen) -> tuple[str, ...]:
    """The allocation's nodes that are neither lost nor excluded, in Slurm's order; suspects that no job of the run can
    do without come last, so that a spare takes their place.
    """
    bad, doubted = set(bad_nodes(state, seen)), dict(state.left_out)
    return tuple(sorted((node for node in seen.nodes if node not in bad), key=lambda node: node in doubted))
