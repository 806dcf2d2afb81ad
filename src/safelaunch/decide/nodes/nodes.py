"""Which nodes an attempt may use, and which are bad for the next job."""

from __future__ import annotations

import math
from collections.abc import Iterable

from safelaunch.decide.budget import alone
from safelaunch.decide.facts.seen import Observation
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan

MAX_BARREN = 3   # jobs in a row that hand over without an attempt


def kept_out(state: State, lost: Iterable[str]) -> tuple[str, ...]:
    """Nodes that the next job must not use, for its leader and for a watch: those that this one must not use, and those
    that have shown a failure alone.
    """
    alone_out = () if begins_nothing(state) else alone.names(state)
    return tuple(sorted({*_unusable(state, lost), *alone_out}))


def _unusable(state: State, lost: Iterable[str]) -> tuple[str, ...]:
    """They are excluded, or `lost` now, evidence or not, or have failed their checks: in this job, or in an earlier one
    since the run has advanced. `suspects.exclude` rules evidence only: on a lost node ranks of the last attempt may
    still live. A node that this job has got once more is judged anew.
    """
    here = state.job.nodes if state.job is not None else ()
    before = (node for node in state.unfit_before if node not in here)
    excluded = () if begins_nothing(state) else (*state.excluded, *before)
    return tuple(sorted({*excluded, *dict(state.unfit), *lost}))


def bad_nodes(state: State, facts: Observation) -> tuple[str, ...]:
    """Nodes that the next job must not use, with the nodes that are lost in a leader's eyes."""
    return kept_out(state, (node for node, _ in facts.lost))


def begins_nothing(state: State) -> bool:
    """Whether the last three jobs, this one included, have launched nothing: then their nodes must do (simulated:
    test_found "hosts whose clocks are hours apart pass the run from job to job only so often"). A job that was requeued
    counts again (simulated: test_found "a requeued job whose nodes fail their checks in turn ends").
    """
    last = state.lives[-MAX_BARREN:]
    return len(last) == MAX_BARREN and last[0][2] == len(state.attempts)


def preserved(plan: Plan, state: State, seen_nodes: tuple[str, ...], host: str) -> tuple[str, ...]:
    """The nodes whose site is kept for people: all of the job, or the suspects and the node that failed first. The
    batch host is among them, since it cannot be given back.
    """
    if plan.preserve.nodes != "suspects" or plan.cluster == "local":
        return seen_nodes
    failed = state.attempt.failed_node if state.attempt else None
    return tuple(node for node in seen_nodes if node in {host, failed, *state.excluded})


def good_nodes(state: State, facts: Observation) -> tuple[str, ...]:
    """The allocation's nodes that are neither lost nor excluded, in Slurm's order. Suspects that no job of the run can
    do without come last, so that a spare takes their place, and so do nodes that have shown a failure alone.
    """
    bad = set(_unusable(state, (node for node, _ in facts.lost)))
    doubts = {**alone.doubts(state), **dict.fromkeys(dict(state.left_out), math.inf)}
    return tuple(sorted((node for node in facts.nodes if node not in bad), key=lambda node: doubts.get(node, 0)))
