"""Which nodes the next job is kept from: one answer for the leader and for a watch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from safelaunch.core.decide.nodes import affordable
from safelaunch.core.decide.watch import judge
from safelaunch.core.decide.watched import Relax
from safelaunch.core.plan import Plan
from safelaunch.core.state import Exclusion, State
from tests.core.decide.situations import PLAN
from tests.core.decide.test_watch import LONG_S, NOW, run, waiting, word

NODES = tuple(f"n{number}" for number in range(10))


def plan(**changes: Any) -> Plan:
    return replace(PLAN, suspects=replace(PLAN.suspects, max_excluded="2"), **changes)


def excluded(*nodes: str) -> State:
    """Kept out, the oldest evidence first."""
    return State(exclusions=tuple(Exclusion(node, "bad") for node in nodes))


@pytest.mark.parametrize(("oldest_first", "wanted", "kept"), [
    (("n1", "n9"), ("n1", "n5", "n9"), ("n5", "n9")),
    (("n9", "n5", "n1"), ("n1", "n5", "n9"), ("n1", "n5")),
    ((), ("n1",), ("n1",)),
], ids=["a node that is lost now, then the newest", "not by the alphabet", "all where they are few"])
@pytest.mark.parametrize("there", [None, ()], ids=["Slurm does not say", "Slurm names none"])
def test_of_too_many_exclusions_the_newest_evidence_counts(
    oldest_first: tuple[str, ...], wanted: tuple[str, ...], kept: tuple[str, ...], there: tuple[str, ...] | None
) -> None:
    assert affordable(plan(), excluded(*oldest_first), wanted, there) == kept


def test_nodes_that_the_user_excludes_are_no_room_for_the_next_job() -> None:
    there = NODES[:PLAN.allocated_nodes + 1]
    assert affordable(plan(), State(), ("n0",), there) == ("n0",)
    assert affordable(plan(sbatch=(("exclude", "n1"),)), State(), ("n0",), there) == ()


def test_what_is_too_much_falls_back_to_what_the_ledger_keeps_out() -> None:
    there = NODES[:PLAN.allocated_nodes + 1]
    assert affordable(plan(), excluded("n2"), there, there) == ("n2",)


@pytest.mark.parametrize(("reservation", "is_relaxed"), [(None, True), ("mine", False)])
def test_a_reserved_node_is_no_room_for_a_watch_but_in_a_run_with_a_reservation(
    reservation: str | None, is_relaxed: bool
) -> None:
    sbatch = (("reservation", reservation),) if reservation else ()
    states = (("idle", "n0"), ("reserved", f"n[1-{PLAN.allocated_nodes}]"))
    act = judge(run(replace(excluded("n0"), jobs=run().state.jobs, attempts=run().state.attempts), plan=replace(
        PLAN, sbatch=sbatch)), word(waiting("BadConstraints", excluded="n0"), same_s=LONG_S, nodes=states), NOW).act
    assert isinstance(act, Relax) == is_relaxed
