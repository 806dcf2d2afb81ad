"""Silence: one silent guard proves nothing, and a node that hears nobody may be the one that is cut off."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.timing import LEASE_S, SILENT_S
from safelaunch.decide.ends.silence import (
    MISSING_S,
    SILENT_BUSY_S,
    Heard,
    Silence,
    is_in_doubt,
    is_lost_by_probe,
    is_missed,
    is_missing_by_probe,
    judge,
    may_be_alone,
    must_end_ranks,
)
from tests.tables import each

BUSY = Heard(SILENT_S, log_grew_s=SILENT_S)


@each(("heard", "expected"), [
    (Heard(1.0), Silence.NOTHING),
    (Heard(SILENT_S - 0.1), Silence.NOTHING),
    (Heard(SILENT_S), Silence.LOST),
    (Heard(SILENT_S, log_grew_s=1.9), Silence.LOST),
    (Heard(SILENT_S, log_grew_s=3.9, ping_every_s=3.0), Silence.LOST),
    (BUSY, Silence.NOTHING),
    (BUSY._replace(is_killed=True), Silence.LOST),
    (BUSY._replace(silent_s=SILENT_BUSY_S), Silence.PROBE),
    (BUSY._replace(silent_s=SILENT_BUSY_S, can_probe=False), Silence.NOTHING),
    (Heard(99.0, is_awaited=False), Silence.NOTHING),
    (Heard(1.5, closed_s=1.5, is_awaited=False), Silence.NOTHING),
    (Heard(2.5, closed_s=2.5, is_awaited=False), Silence.TASK_GONE),
], ids=[
    "it answers", "nine pings without an answer", "ten, and the log stands still",
    "the last lines came a second after its last word", "... among many guards, that are pinged each 3 s",
    "the log goes on: a busy node", "... whose ranks were told to end", "a minute, and the log goes on",
    "... on a site that forbids helper steps", "it has told of its task's end", "its connection closed a moment ago",
    "... and it did not come back",
])
def test_what_the_silence_of_a_guard_means(heard: Heard, expected: Silence) -> None:
    assert judge(heard) is expected


@given(st.floats(0, 1e6), st.none() | st.floats(0, 1e6), st.booleans(), st.floats(0, 1e6), st.floats(1, 3),
       st.booleans(), st.booleans())
def test_no_node_is_lost_within_ten_seconds(
    silent_s: float, closed_s: float | None, awaited: bool, grew_s: float, ping_s: float, killed: bool, probe: bool
) -> None:
    heard = judge(Heard(silent_s, closed_s, awaited, grew_s, ping_s, killed, probe))
    if heard is Silence.LOST:
        assert silent_s >= SILENT_S and awaited
    assert heard is Silence.NOTHING or is_in_doubt(silent_s, closed_s is not None)


@each(("silent_s", "is_ok", "expected"), [
    (61.0, False, True), (61.0, True, False), (61.0, None, False), (1.0, False, False),
], ids=["the step failed", "it ran", "it was never tried", "the guard was heard meanwhile"])
def test_a_helper_step_is_a_witness_only_where_it_ran_and_the_guard_stays_silent(
    silent_s: float, is_ok: bool | None, expected: bool
) -> None:
    assert is_lost_by_probe(silent_s, is_ok) is expected


@each(("launched_s", "still_s", "is_killed", "can_probe", "expected"), [
    (MISSING_S, MISSING_S, False, True, True), (MISSING_S - 1, MISSING_S - 1, False, True, False),
    (MISSING_S, SILENT_S - 1, False, True, False), (MISSING_S, MISSING_S, True, True, False),
    (MISSING_S, MISSING_S, False, False, False),
], ids=["nothing is heard of it, and the log stands still", "it may be on its way", "ranks print: they do not wait",
        "the attempt is being ended", "a site that forbids helper steps"])
def test_when_a_node_is_asked_of_which_no_guard_has_connected(
    launched_s: float, still_s: float, is_killed: bool, can_probe: bool, expected: bool
) -> None:
    assert is_missed(launched_s, still_s, is_killed=is_killed, can_probe=can_probe) is expected


@each(("is_same_attempt", "has_guard", "has_given_up", "expected"), [
    (True, False, True, True), (True, False, False, False), (True, True, True, False), (False, False, True, False),
], ids=["Slurm gave it up", "it runs steps, or nobody knows", "its guard came meanwhile", "the attempt is over"])
def test_a_node_without_a_guard_is_lost_only_where_slurm_gives_it_up(
    is_same_attempt: bool, has_guard: bool, has_given_up: bool, expected: bool
) -> None:
    assert is_missing_by_probe(is_same_attempt=is_same_attempt, has_guard=has_guard,
                               has_given_up=has_given_up) is expected


@each(("nodes", "lost", "standby_s", "is_local", "expected"), [
    (("n0", "n1", "n2"), {"n1", "n2"}, None, False, True),
    (("n0", "n1", "n2"), {"n1"}, None, False, False),
    (("n0", "n1", "n2"), {"n1", "n2"}, 1.0, False, False),
    (("n0", "n1", "n2"), {"n1", "n2"}, SILENT_S, False, True),
    (("n0",), set(), None, False, False),
    ((), set(), None, False, False),
    (("n0", "n1"), {"n1"}, None, True, False),
], ids=["all others are lost", "one is heard", "the standby, on a spare, is heard", "it is silent as well",
        "a run of one node", "before the first attempt", "a local run"])
def test_when_slurm_is_asked_whether_this_node_is_the_one_that_is_cut_off(
    nodes: tuple[str, ...], lost: set[str], standby_s: float | None, is_local: bool, expected: bool
) -> None:
    assert may_be_alone("n0", nodes, lost, standby_s, is_local) is expected


@each(("leads", "had_eligible", "silent_s", "expected"), [
    (False, True, LEASE_S + 0.1, True), (False, True, LEASE_S, False),
    (True, True, LEASE_S + 0.1, False), (False, False, LEASE_S + 0.1, False),
], ids=["another may lead by now", "its standby was heard within a lease", "it leads", "nobody could lead instead"])
def test_a_leader_that_cannot_start_ends_the_ranks_where_another_may_lead(
        leads: bool, had_eligible: bool, silent_s: float, expected: bool) -> None:
    assert must_end_ranks(leads=leads, had_eligible=had_eligible, standby_silent_s=silent_s) is expected
