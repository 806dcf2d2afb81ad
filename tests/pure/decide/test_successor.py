"""The next job: which nodes it is kept from, and who took it out of the queue; one answer for leader and watch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safelaunch.decide.jobs.successor import Room, affordable, fewer, is_before, make_room, taken_back
from safelaunch.run.fold.state import Exclusion, Job, State
from safelaunch.run.plan import Plan
from safelaunch.watch.watch import judge
from safelaunch.watch.watched import Relax
from tests.pure.decide.situations import PLAN
from tests.pure.decide.test_watch import LONG_S, NOW, run, waiting, word
from tests.tables import each

NODES = tuple(f"n{number}" for number in range(10))


def plan(**changes: Any) -> Plan:
    return PLAN._replace(suspects=PLAN.suspects._replace(max_excluded="2"), **changes)


def excluded(*nodes: str) -> State:
    """Kept out, the oldest evidence first."""
    return State(exclusions=tuple(Exclusion(node, "bad") for node in nodes))


@each(("oldest_first", "wanted", "kept"), [
    (("n1", "n9"), ("n1", "n5", "n9"), ("n5", "n9")),
    (("n9", "n5", "n1"), ("n1", "n5", "n9"), ("n1", "n5")),
    ((), ("n1",), ("n1",)),
], ids=["a node that is lost now, then the newest", "not by the alphabet", "all where they are few"])
@each("there", [None, ()], ids=["Slurm does not say", "Slurm names none"])
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


def test_nodes_that_failed_their_checks_in_an_earlier_job_give_way_first() -> None:
    there = NODES[:PLAN.allocated_nodes + 1]
    before = replace(excluded(), unfit_before=("n0",))
    assert affordable(plan(), before, ("n0", "n1"), there) == ("n1",)
    assert affordable(plan(), replace(excluded("n0"), unfit_before=("n0",)), ("n0",), there) == ("n0",)
    unknown = replace(excluded("n1", "n2"), unfit_before=("n0", "n3"), unfit=(("n3", "shm: it is missing"),))
    assert affordable(plan(), unknown, ("n0", "n1", "n2", "n3"), None) == ("n3", "n2")


# --- a job that waits for ever ------------------------------------------------------------------------------------

NEEDED = PLAN.allocated_nodes


@each(("oldest_first", "listed", "usable", "room"), [
    (("n0", "n1"), ("n0", "n1"), NODES[:NEEDED + 2], Room(left=NEEDED)),
    (("n0", "n1"), ("n0", "n1"), NODES[:NEEDED + 1], Room(("n0",), NEEDED - 1)),
    (("n1", "n0"), ("n0", "n1"), NODES[:NEEDED + 1], Room(("n1",), NEEDED - 1)),
    (("n0",), ("n0", "n1"), NODES[:NEEDED + 1], Room(("n0",), NEEDED - 1)),
    (("n0", "n1"), ("n0", "n1"), NODES[:NEEDED], Room(("n0", "n1"), NEEDED - 2)),
    (("n9",), ("n9",), NODES[:NEEDED - 1], Room((), NEEDED - 1)),
    ((), ("n0", "n1"), NODES[:NEEDED + 1], Room(("n0",), NEEDED - 1)),
], ids=["it could start", "the oldest evidence gives way", "not the first of the alphabet",
        "before a node met just now", "all of it", "a node that is down stays out",
        "without evidence, in the order of the list"])
def test_the_oldest_evidence_gives_way_to_a_job_that_could_never_start(
    oldest_first: tuple[str, ...], listed: tuple[str, ...], usable: tuple[str, ...], room: Room
) -> None:
    assert make_room(PLAN, excluded(*oldest_first), listed, usable) == room


def test_what_the_ledger_affords_is_what_gives_way_last() -> None:
    state = excluded("n5", "n1", "n9")
    first = affordable(plan(), state, ("n1", "n5", "n9"), None)
    room = make_room(PLAN, state, ("n1", "n5", "n9"), ("n1", "n5", "n9", *NODES[2:2 + NEEDED - 1]))
    assert len(room.drop) == 1 and not set(room.drop) & set(first)


def test_nodes_that_the_user_excludes_never_give_way() -> None:
    own = plan(sbatch=(("exclude", "n0"),))
    assert make_room(own, excluded("n0", "n1"), ("n0", "n1"), NODES[:NEEDED + 1]) == Room(("n1",), NEEDED - 1)


@each(("exclude", "said", "expected"), [
    (("n1",), "sbatch: error: Batch job submission failed: Requested node configuration is not available", ()),
    ((), "sbatch: error: Batch job submission failed: Requested node configuration is not available", None),
    (("n1",), "sbatch: error: Batch job submission failed: Invalid account", None),
    (("n1",), "sbatch: error: Batch job submission failed: Socket timed out", None),
], ids=["too few nodes are left", "the run asks for too much", "another reason", "no answer"])
def test_exclusions_go_when_sbatch_refuses_the_job_for_want_of_nodes(
    exclude: tuple[str, ...], said: str, expected: tuple[str, ...] | None
) -> None:
    assert fewer(exclude, said) == expected


# --- a job that a person took back --------------------------------------------------------------------------------


@each(("changes", "cancelled", "expected"), [
    ({}, ("13",), "13"),
    ({}, (), None),
    ({}, ("11",), None),
    ({}, ("12",), None),
    ({"cancelled_jobs": ("13",)}, ("13", "14"), "14"),
    ({"jobs": (Job("13", 0.0, started_t=1.0),)}, ("13",), None),
    ({"jobs": (Job("13", 0.0),)}, ("13",), "13"),
], ids=["nobody knew of it", "none is cancelled", "an earlier one", "this job", "safelaunch did it itself",
        "it has started: it is no next job", "its submission is known"])
def test_a_later_job_that_was_cancelled_unannounced_was_taken_back_by_a_person(
    changes: dict[str, Any], cancelled: tuple[str, ...], expected: str | None
) -> None:
    assert taken_back(State(**changes), "12", cancelled) == expected


@each(("job", "other", "expected"), [
    ("9", "10", True), ("10", "9", False), ("9", "9", False), ("9_1", "10", False), ("", "10", False)])
def test_jobs_are_in_the_order_of_their_numbers(job: str, other: str, expected: bool) -> None:
    assert is_before(job, other) is expected


# --- what a watch makes of it -------------------------------------------------------------------------------------


@each(("reservation", "reserved", "is_relaxed"), [
    (None, None, True), ("mine", None, False), ("mine", NODES[1:NEEDED + 1], False), ("mine", NODES[:NEEDED], True),
], ids=["another run's reservation", "nobody says which nodes it has", "its own leaves enough",
        "its own has just enough"])
def test_a_reserved_node_is_room_only_in_a_run_that_has_reserved_it(
    reservation: str | None, reserved: tuple[str, ...] | None, is_relaxed: bool
) -> None:
    sbatch = (("reservation", reservation),) if reservation else ()
    states = (("idle", "n0"), ("reserved", f"n[1-{PLAN.allocated_nodes}]"))
    known = replace(excluded("n0"), jobs=run().state.jobs, attempts=run().state.attempts)
    told = word(waiting("BadConstraints", excluded="n0"), same_s=LONG_S, nodes=states, reserved=reserved)
    act = judge(run(known, plan=PLAN._replace(sbatch=sbatch)), told, NOW).act
    assert isinstance(act, Relax) == is_relaxed
