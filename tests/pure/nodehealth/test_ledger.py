"""The ledger of nodes: evidence that fades, and exclusions that are capped, explained and expire."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.launch.settings import Suspects
from safelaunch.nodehealth.ledger import (
    CLEARED,
    DISPROVED,
    KINDS,
    MOST_FAILURES,
    SKEW_S,
    SURE,
    THRESHOLD,
    ExclusionTerm,
    NodeEvidence,
    clusters_of,
    exclusions,
    most_excluded,
    needed,
    of_cluster,
    standings,
    strangers,
    weight_left,
    why_readmitted,
)
from safelaunch.why.categories import TABLE
from tests.tables import each

DAY_S = 86400.0
WEEK_S = 7 * DAY_S
NOW = 1_795_000_000.0
NODES = ("n0", "n1", "n2", "n3")
FACTS = tuple(kind for kind, row in KINDS.items() if row.weight >= SURE)
INFERRED = tuple(kind for kind, row in KINDS.items() if 0 < row.weight < SURE)


def evidence(node: str, kind: str, *, ago_s: float = 0.0, run: str = "r1", attempt: int | None = 1, why: str = "why",
             owner: str = "alice", fingerprint: str = "") -> NodeEvidence:
    return NodeEvidence(node, kind, NOW - ago_s, why, owner, run, attempt, fingerprint)


def kept_out(*found: NodeEvidence, nodes: int = 40, spares: int = 0, now: float = NOW, suspects: Suspects | None = None,
             among: tuple[str, ...] | None = None, available: tuple[str, ...] | None = None, run: str = "",
             ) -> tuple[ExclusionTerm, ...]:
    return exclusions(found, now, suspects or Suspects(), nodes=nodes, spares=spares, run=run, among=among,
                      available=available)


def names(found: tuple[ExclusionTerm, ...]) -> tuple[str, ...]:
    return tuple(one.node for one in found)


EVIDENCE = st.builds(
    NodeEvidence, node=st.sampled_from(["n0", "n1", "n2", "n3", "n4", "n5"]),
    kind=st.sampled_from([*KINDS, "of-tomorrow"]),
    t=st.floats(NOW - 60 * DAY_S, NOW + 2 * SKEW_S), why=st.sampled_from(["a", "b"]),
    owner=st.sampled_from(["alice", "bob"]), run=st.sampled_from(["", "r1", "r2"]),
    attempt=st.none() | st.integers(1, 6), fingerprint=st.sampled_from(["", "f1", "f2"]),
    cluster=st.sampled_from(["", "alpha", "beta"]),
)
LEDGER = st.lists(EVIDENCE, max_size=30)


# --- how much a witness counts ------------------------------------------------------------------------------------


def score(found: list[NodeEvidence], node: str, now: float, half_life_s: float) -> float:
    """The weight of all that speaks against a node now."""
    return next((one.score for one in standings(found, now, half_life_s) if one.node == node), 0.0)


@each(
    ("witnesses", "is_out"),
    [
        ([("lost", 1)], True),
        ([("gpu", 1)], True),
        ([("person", 1)], True),
        ([("network", 1)], False),
        ([("network", 1), ("network", 2)], True),
        ([("hang", 1), ("network", 2)], True),
        ([("short_cycle", 1), ("short_cycle", 2)], True),
        ([("first_to_fail", n) for n in (1, 2, 3)], False),
        ([("first_to_fail", n) for n in (1, 2, 3, 4)], True),
        ([("first_to_fail", 1), ("network", 2)], False),
        ([("of-tomorrow", n) for n in range(9)], False),
    ],
    ids=["a lost node", "a broken GPU", "a person's request", "the network once", "the network twice",
         "a hang and the network", "a black hole, twice", "first to fail three times", "first to fail four times",
         "first to fail and the network", "kinds of a later version"],
)
def test_how_many_witnesses_it_takes(witnesses: list[tuple[str, int]], is_out: bool) -> None:
    found = [evidence("n1", kind, attempt=attempt, ago_s=60.0 * (9 - attempt)) for kind, attempt in witnesses]
    assert names(kept_out(*found)) == (("n1",) if is_out else ())


def test_one_failure_is_one_witness_however_much_is_said_of_it() -> None:
    said = [evidence("n1", "network", attempt=3, why=str(n)) for n in range(20)] + [evidence("n1", "hang", attempt=3)]
    assert score(said, "n1", NOW, WEEK_S) == KINDS["network"].weight


def test_the_heaviest_word_on_a_failure_counts() -> None:
    said = [evidence("n1", "first_to_fail"), evidence("n1", "gpu"), evidence("n1", "network")]
    assert score(said, "n1", NOW, WEEK_S) == SURE


def test_the_same_attempt_of_another_run_is_another_witness() -> None:
    assert score([evidence("n1", "network"), evidence("n1", "network", run="r2")], "n1", NOW, WEEK_S) == pytest.approx(
        2 * KINDS["network"].weight)


def test_a_person_speaks_once_and_two_people_twice() -> None:
    said = [evidence("n1", "person", run="", attempt=None, ago_s=ago) for ago in (0.0, 60.0)]
    assert score(said, "n1", NOW, WEEK_S) == SURE
    both = [*said, replace(said[0], owner="bob")]
    assert score(both, "n1", NOW, WEEK_S) == 2 * SURE


def test_however_much_has_gone_wrong_a_node_is_back_after_three_half_lives() -> None:
    found = [evidence("n1", "gpu", attempt=number) for number in range(100)]
    assert score(found, "n1", NOW, WEEK_S) == MOST_FAILURES * SURE
    assert names(kept_out(*found, now=NOW + 3.01 * WEEK_S)) == ()


# --- time ---------------------------------------------------------------------------------------------------------


@each(
    ("age_s", "left"),
    [(0.0, 1.0), (WEEK_S, 0.5), (2 * WEEK_S, 0.25), (-60.0, 1.0), (-SKEW_S - 1, 0.0), (1e15, 0.0)],
    ids=["new", "one half-life", "two", "another clock is a minute ahead", "from the future", "from long ago"],
)
def test_evidence_fades(age_s: float, left: float) -> None:
    assert weight_left(evidence("n1", "gpu", ago_s=age_s), NOW, WEEK_S) == pytest.approx(left * SURE)


def test_forgetting_at_once_keeps_nothing() -> None:
    assert kept_out(evidence("n1", "gpu"), suspects=Suspects(forget_after_s=0.0)) == ()


def test_a_lost_node_comes_back_after_a_half_life() -> None:
    (out,) = kept_out(evidence("n1", "lost"))
    assert out.until_t == pytest.approx(NOW + WEEK_S)
    assert kept_out(evidence("n1", "lost"), now=out.until_t - 1) != ()
    assert kept_out(evidence("n1", "lost"), now=out.until_t + 1) == ()


def test_evidence_from_the_future_counts_nothing_until_its_time_has_come() -> None:
    found = evidence("n1", "gpu", ago_s=-DAY_S)
    assert standings([found], NOW, WEEK_S) == ()
    assert names(kept_out(found, now=NOW + DAY_S)) == ("n1",)


@given(EVIDENCE, st.floats(0, 1e8), st.floats(0, 1e8), st.floats(0, 1e7))
def test_no_witness_ever_gains_weight(one: NodeEvidence, early_s: float, more_s: float, half_life_s: float) -> None:
    now = one.t + early_s
    assert weight_left(one, now, half_life_s) >= weight_left(one, now + more_s, half_life_s) >= 0


@given(LEDGER, st.floats(0, 30 * DAY_S))
def test_without_new_evidence_an_exclusion_ends_when_it_was_said_to(found: list[NodeEvidence], later_s: float) -> None:
    now = NOW + 2 * SKEW_S   # all of it is believed by now
    for one in standings(found, now, WEEK_S):
        later = next(other for other in standings(found, now + later_s, WEEK_S) if other.node == one.node)
        assert later.score <= one.score + 1e-9
        if one.until_t is not None and abs(now + later_s - one.until_t) > 1:
            assert (later.until_t is not None) == (now + later_s < one.until_t)


# --- the same cause on other nodes --------------------------------------------------------------------------------


@each("kind", INFERRED)
def test_same_cause_on_disjoint_nodes_blames_no_node(kind: str) -> None:
    found = [evidence("n1", kind, attempt=n, fingerprint="f") for n in (1, 2, 3, 4)]
    assert names(kept_out(*found)) == ("n1",)
    assert kept_out(*found, evidence("n2", kind, attempt=5, fingerprint="f")) == ()


@each("kind", FACTS)
def test_what_was_seen_at_the_node_itself_stays_true_of_two_nodes(kind: str) -> None:
    found = [evidence("n1", kind, attempt=1, fingerprint="f"), evidence("n2", kind, attempt=2, fingerprint="f")]
    assert set(names(kept_out(*found))) == {"n1", "n2"}


def network(fingerprint: str = "f", **nodes_of: str) -> list[NodeEvidence]:
    """Network failures of run r1: attempt → nodes blamed."""
    return [evidence(node, "network", attempt=int(attempt[1:]), fingerprint=fingerprint)
            for attempt, nodes in nodes_of.items() for node in nodes.split()]


@each(
    ("found", "expected"),
    [
        (network(a1="n1 n2", a2="n1 n3"), {"n1"}),
        (network(a1="n1 n2", a2="n1 n3", a3="n2 n3"), {"n1", "n2", "n3"}),
        (network(a1="n1", a2="n1", a3="n1 n2", a4="n2"), set()),
        (network(a1="n1", a2="n1") + network("g", a3="n2"), {"n1"}),
        (network("", a1="n1", a2="n1", a3="n2"), {"n1"}),
        ([*network(a1="n1", a2="n1"), evidence("n2", "network", run="r2", fingerprint="f")], {"n1"}),
        ([*network(a1="n1", a2="n1"), evidence("n2", "first_to_fail", attempt=3, fingerprint="f")], set()),
        ([*network(a1="n1", a2="n1"), evidence("n2", "person", run="", attempt=None, fingerprint="f")], {"n1", "n2"}),
    ],
    ids=["with a node in common", "any two have a node in common", "the last is disjoint from the first",
         "another cause", "a cause without a fingerprint", "another run, with other code",
         "the same cause under another kind", "a person's request"],
)
def test_which_causes_are_void(found: list[NodeEvidence], expected: set[str]) -> None:
    assert set(names(kept_out(*found))) == expected


def test_a_void_cause_is_said_to_be_void() -> None:
    both = standings(network(a1="n1", a2="n2"), NOW, WEEK_S)
    assert [(one.node, one.score, one.void, len(one.known)) for one in both] == [("n1", 0, True, 1), ("n2", 0, True, 1)]


def test_forged_failures_without_end_cost_no_time() -> None:
    forged = [evidence(node, "network", attempt=number, fingerprint="f")
              for number in range(4000) for node in ("n0", f"x{number}")]
    assert standings(forged, NOW, WEEK_S)[0].node == "n0"


# --- a person clears ----------------------------------------------------------------------------------------------


def clear(node: str, ago_s: float = 0.0) -> NodeEvidence:
    return evidence(node, CLEARED, ago_s=ago_s, run="", attempt=None, owner="bob")


def test_clearing_wipes_what_came_before_and_nothing_after() -> None:
    old, new = evidence("n1", "gpu", ago_s=100), evidence("n1", "network", ago_s=10, attempt=2)
    (left,) = standings([old, clear("n1", 50), new], NOW, WEEK_S)
    assert left.known == (new,)


def test_clearing_a_node_clears_no_other() -> None:
    found = [evidence("n1", "gpu", ago_s=9), evidence("n2", "gpu", ago_s=9), clear("n1")]
    assert names(kept_out(*found)) == ("n2",)


def test_a_person_can_suspect_again_what_was_cleared() -> None:
    found = [evidence("n1", "person", ago_s=9), clear("n1", 5), evidence("n1", "person", ago_s=1)]
    assert names(kept_out(*found)) == ("n1",)


def test_clearing_a_node_does_not_bring_back_the_blame_of_others() -> None:
    found = [*network(a1="n1", a2="n1", a3="n2"), clear("n2")]
    assert kept_out(*found) == ()


@given(LEDGER, st.sampled_from(["n0", "n1"]))
def test_right_after_clearing_nothing_is_left(found: list[NodeEvidence], node: str) -> None:
    now = NOW + 3 * SKEW_S
    wiped = [*found, NodeEvidence(node, CLEARED, now, "why", "alice")]
    assert score(wiped, node, now, WEEK_S) == 0
    others = [(one.node, one.score) for one in standings(found, now, WEEK_S) if one.node != node]
    assert [(one.node, one.score) for one in standings(wiped, now, WEEK_S)] == others


# --- which of them to keep out ------------------------------------------------------------------------------------


@each(
    ("most", "nodes", "spares", "expected"),
    [("10%", 16, 0, 1), ("10%", 4, 0, 1), ("10%", 40, 0, 4), ("10%", 16, 3, 3), ("0", 16, 3, 0), ("2", 16, 3, 2),
     ("100%", 4, 0, 4), ("0%", 4, 0, 1), ("12.5%", 16, 0, 2)],
    ids=["a tenth of 16", "one at least", "a tenth of 40", "the spares wait for just that", "none, says the user",
         "a number is the user's word", "all", "a share is one node at least", "a broken share"],
)
def test_the_cap(most: str, nodes: int, spares: int, expected: int) -> None:
    assert most_excluded(Suspects(max_excluded=most), nodes, spares) == expected


def test_the_worst_are_kept_out_first() -> None:
    found = [evidence("n1", "network", attempt=1), evidence("n1", "network", attempt=2), evidence("n2", "gpu"),
             evidence("n3", "gpu", attempt=1), evidence("n3", "lost", attempt=2)]
    assert names(kept_out(*found)) == ("n3", "n2", "n1")
    assert names(kept_out(*found, suspects=Suspects(max_excluded="2"))) == ("n3", "n2")


def test_a_run_keeps_out_those_first_that_it_has_met_itself() -> None:
    black_hole = [evidence("n1", "short_cycle", run="mine", attempt=number) for number in (1, 2)]
    elsewhere = [evidence("n9", "gpu", run="theirs")]
    assert names(kept_out(*elsewhere, *black_hole, nodes=4)) == ("n9",)
    assert names(kept_out(*elsewhere, *black_hole, nodes=4, run="mine")) == ("n1",)


def test_only_nodes_that_are_there_use_up_the_cap() -> None:
    found = [evidence("n1", "gpu"), evidence("n9", "gpu", attempt=1), evidence("n9", "gpu", attempt=2)]
    assert names(kept_out(*found, nodes=4, among=NODES)) == ("n1",)


@each(
    ("available", "expected"),
    [(("n0", "n1", "n2", "n3"), ()), (("n0", "n1", "n2", "n3", "n4"), ("n1",)), (None, ("n1", "n2")),
     (("n0", "n3", "n4", "n5"), ("n1", "n2")), ((), ())],
    ids=["all are needed", "one can be spared", "nobody knows", "the bad ones cannot be had anyway", "none can be had"],
)
def test_a_run_keeps_the_nodes_that_it_needs(available: tuple[str, ...] | None, expected: tuple[str, ...]) -> None:
    found = [evidence("n1", "gpu"), evidence("n2", "gpu", ago_s=60)]
    assert names(kept_out(*found, nodes=4, suspects=Suspects(max_excluded="2"), available=available)) == expected


def test_nothing_is_kept_out_where_the_user_does_not_want_it() -> None:
    assert kept_out(evidence("n1", "gpu"), suspects=Suspects(exclude=False)) == ()


def test_an_exclusion_says_why_and_on_whose_word() -> None:
    found = [evidence("n1", "gpu", why="Xid 79: GPU has fallen off the bus", owner="bob"),
             evidence("n1", "network", attempt=2, why="port down")]
    (out,) = kept_out(*found)
    assert (out.why, out.owner) == ("GPU hardware failed: Xid 79: GPU has fallen off the bus (and 1 more)", "bob")


@given(LEDGER, st.sampled_from(["0", "1", "2", "5", "10%", "40%", "100%"]), st.integers(1, 8), st.integers(0, 3),
       st.none() | st.sets(st.sampled_from(["n0", "n1", "n2", "n3", "n4", "n5", "n6"])))
def test_never_more_than_the_cap_and_never_below_what_the_run_needs(
    found: list[NodeEvidence], most: str, nodes: int, spares: int, available: set[str] | None,
) -> None:
    suspects = Suspects(max_excluded=most)
    out = exclusions(found, NOW, suspects, nodes=nodes, spares=spares, available=available)
    assert len(out) <= most_excluded(suspects, nodes, spares)
    assert len({one.node for one in out}) == len(out)
    assert all(one.score >= THRESHOLD and one.until_t >= NOW for one in out)
    if available is not None and {one.node for one in out} & available:
        assert len(available - {one.node for one in out}) >= nodes


@given(LEDGER, st.randoms(use_true_random=False))
def test_the_order_of_evidence_does_not_matter(found: list[NodeEvidence], random: Random) -> None:
    mixed = list(found)
    random.shuffle(mixed)
    twice = mixed + mixed[:5]
    assert standings(twice, NOW, WEEK_S) == standings(found, NOW, WEEK_S)
    assert kept_out(*twice, run="r1") == kept_out(*found, run="r1")


# --- the table ----------------------------------------------------------------------------------------------------


@each("kind", KINDS)
def test_every_kind_says_what_it_is_and_where_its_weight_comes_from(kind: str) -> None:
    row = KINDS[kind]
    assert row.what and row.source and 0 <= row.weight <= SURE


def test_the_table_of_kinds_is_documented_as_it_is() -> None:
    text = (Path(__file__).parents[3] / "docs" / "nodes.md").read_text()
    rows = text.partition("| evidence | counts |")[2].partition("\n\n")[0].splitlines()[2:]
    documented = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]
    assert documented == [(f"`{kind}`", str(row.weight), row.what, row.source) for kind, row in KINDS.items()
                          if kind not in (CLEARED, DISPROVED)]
    nobodys = {name for name, row in TABLE.items() if row.blame is None and name != "none"}
    assert nobodys <= set(re.findall("[a-z_]+", text.partition("**Users' errors")[2].partition(". A ")[0]))


def test_a_dead_node_is_not_kept_out_where_the_run_can_only_wait_for_it() -> None:
    lost = NodeEvidence("n1", "lost", 1000.0, "silent", "alice", "r1", 1)
    assert exclusions([lost], 1001.0, Suspects(), nodes=2, available=["n0"]) == ()
    assert [one.node for one in exclusions([lost], 1001.0, Suspects(), nodes=2, available=["n0", "n2"])] == ["n1"]


# --- clusters -----------------------------------------------------------------------------------------------------


@each(
    ("of", "cluster", "counts"),
    [
        (("alpha",), "alpha", "alpha"),
        (("alpha",), "beta", ""),
        (("alpha", "beta"), "alpha", "alpha"),
        (("",), "alpha", "unknown"),
        (("", "alpha"), "alpha", "unknown alpha"),
        (("", "beta"), "alpha", ""),
        (("", "alpha", "beta"), "alpha", "alpha"),
        (("", "alpha"), "", "unknown alpha"),
        (("", "alpha", "beta"), "", ""),
        (("",), "", "unknown"),
    ],
    ids=["its own", "another's", "its own beside another's", "old, and nobody else is known", "old beside its own",
         "old beside another's", "old beside both", "nobody says which it is", "... and there are two", "all unknown"],
)
def test_evidence_counts_on_its_own_cluster(of: tuple[str, ...], cluster: str, counts: str) -> None:
    found = [replace(evidence(f"n{number}", "lost"), cluster=name) for number, name in enumerate(of)]
    assert [one.cluster or "unknown" for one in of_cluster(found, cluster)] == counts.split()


@given(LEDGER, st.sampled_from(["", "alpha", "beta", "gamma"]))
def test_what_counts_on_a_cluster_is_never_named_for_another(found: list[NodeEvidence], cluster: str) -> None:
    counted = of_cluster(found, cluster)
    assert len({*clusters_of(counted), cluster} - {""}) <= 1
    assert of_cluster(counted, cluster) == counted


def test_a_clear_on_one_cluster_leaves_the_node_of_that_name_on_another_alone() -> None:
    found = [replace(evidence("n3", "lost", ago_s=9.0), cluster=name) for name in ("alpha", "beta")]
    found.append(replace(clear("n3"), cluster="alpha"))
    assert [names(kept_out(*of_cluster(found, name))) for name in ("alpha", "beta")] == [(), ("n3",)]


@each(("found", "is_full", "expected"), [
    ([evidence("n1", "network"), evidence("n1", "network", attempt=2)], True, "max_excluded"),
    ([evidence("n1", "network"), evidence("n1", "network", attempt=2)], False, "too few nodes"),
    ([evidence("n1", "network"), evidence("n1", "network", attempt=2, ago_s=WEEK_S)], True, "faded"),
    ([evidence("n1", "gpu", ago_s=5.0), clear("n1")], True, "person"),
    ([evidence("n1", "network", attempt=number, fingerprint="f") for number in (1, 2)]
     + [evidence("n2", "network", attempt=3, fingerprint="f")], True, "other nodes"),
    ([], True, "faded"),
], ids=["the cap", "the run needs it", "faded", "cleared", "void", "no evidence"])
def test_why_a_node_is_kept_out_no_more(found: list[NodeEvidence], is_full: bool, expected: str) -> None:
    assert expected in why_readmitted(found, "n1", NOW, Suspects(), is_full=is_full)


def test_a_suspect_that_the_user_asks_for_or_the_run_needs_is_not_kept_out() -> None:
    found = [evidence("n1", "lost"), evidence("n2", "lost")]
    assert names(exclusions(found, NOW, Suspects(max_excluded="2"), nodes=1, asked=("n1",))) == ("n2",)
    # A spare of the same job takes the place of the worst of them.
    assert names(exclusions(found, NOW, Suspects(max_excluded="2"), nodes=1, asked=("n1", "n2"), replaced=1)) == ("n1",)
    told = needed(found, NOW, Suspects(), ("n2",), 2, ("n1", "n2", "n3"))
    assert list(told) == ["n1"] and "too few nodes" in told["n1"]
    assert needed(found, NOW, Suspects(), ("n2",), 1, ("n1", "n2", "n3")) == {}, "the cap keeps it in"
    assert needed(found, NOW, Suspects(), (), 1, ("n3",)) == {}, "it is not there"


def test_a_suspect_that_is_not_there_is_told_and_not_kept_out() -> None:
    found = [evidence("gone", "lost"), evidence("n1", "lost"), evidence("light", "first_to_fail")]
    assert names(kept_out(*found, among=NODES, available=NODES, nodes=2)) == ("n1",)
    assert [one.node for one in strangers(found, NOW, Suspects(), NODES)] == ["gone"]
    assert strangers(found, NOW, Suspects(exclude=False), NODES) == ()


def test_a_run_takes_back_what_it_measured_and_nothing_else() -> None:
    slow = NodeEvidence("n1", "slow", 1000.0, "matmul: 2.5 % slower", "bob", "r1", 4)
    back = NodeEvidence("n1", DISPROVED, 2000.0, "the speed did not come back", "bob", "r1", 5)
    gpu = NodeEvidence("n1", "gpu", 1500.0, "Xid 79", "bob", "r1", 3)

    def scores(*evidences: NodeEvidence) -> dict[str, bool]:
        return {one.node: one.until_t is not None for one in standings(evidences, 2001.0, WEEK_S)}

    assert scores(slow) == {"n1": True}
    assert scores(slow, back) == scores(back, slow) == scores(back) == {}
    assert scores(replace(slow, run="r2"), back) == {"n1": True}, "another run's word is its own"
    assert scores(replace(slow, t=2000.5, attempt=6), back) == {"n1": True}, "measured again since"
    assert scores(replace(slow, t=3000.0), back) == {}, "by a host whose clock is ahead"
    assert [one.counted for one in standings([slow, back, gpu], 2001.0, WEEK_S)] == [(gpu,)]
    assert why_readmitted([slow, back], "n1", 2001.0, Suspects(), is_full=False) == (
        "the speed did not come back without it")
