"""Blame: which nodes a failed attempt speaks against; none for what people, programs and whole clusters do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.decide.budget.blame import CONFIDENT, SHORT_CYCLE_S, Failure, blame, confirm
from safelaunch.launch.settings import Suspects
from safelaunch.nodehealth.ledger import KINDS, exclusions
from safelaunch.why.categories import NAMES, TABLE
from safelaunch.why.fingerprint import UNEXPLAINED_KILL
from tests.tables import each

NODES = ("n0", "n1", "n2", "n3")
NOBODYS = {name for name, row in TABLE.items() if row.blame is None}
FAILURE = Failure("r1", "alice", 1000.0, 1, NODES, "unknown", 0.2, "task 8 on n1: exit code 3", ("n1",), lived_s=900.0,
                  steps=50, fingerprint="f")


def kinds(failure: Failure) -> dict[str, str]:
    return {one.node: one.kind for one in blame(failure)}


@each("category", sorted(NOBODYS))
def test_what_a_person_the_program_or_the_cluster_did_blames_no_node(category: str) -> None:
    early = FAILURE._replace(category=category, confidence=1.0, lived_s=1.0, steps=0)
    assert blame(early) == ()
    assert blame(early._replace(lost=(("n1", "no answer for 10 s"),))) == ()


@each(
    ("category", "confidence", "kind"),
    [
        ("gpu_hardware", 0.9, "gpu"),
        ("gpu_hardware", 0.3, "gpu_maybe"),
        ("node_failure", 0.9, "lost"),
        ("node_failure", 0.3, "first_to_fail"),
        ("network", 0.9, "network"),
        ("network", 0.3, "first_to_fail"),
        ("hang", 0.9, "hang"),
        ("native_crash", 0.9, "first_to_fail"),
        ("rendezvous", 0.9, "first_to_fail"),
        ("unknown", 0.1, "first_to_fail"),
        ("of_tomorrow", 0.9, "first_to_fail"),
    ],
    ids=["a broken GPU", "perhaps a broken GPU", "a broken node", "perhaps a broken node", "the network",
         "perhaps the network", "a hang", "a native crash", "the rendezvous", "unknown", "of a later version"],
)
def test_what_a_category_says_of_the_culprit(category: str, confidence: float, kind: str) -> None:
    assert kinds(FAILURE._replace(category=category, confidence=confidence)) == {"n1": kind}


def test_a_kill_that_nothing_explains_blames_no_node() -> None:
    early = FAILURE._replace(lived_s=1.0, steps=0, fingerprint=UNEXPLAINED_KILL)
    assert blame(early) == () and blame(early._replace(fingerprint="f")) != ()


def test_every_category_blames_nobody_or_a_culprit() -> None:
    assert {category for category in NAMES if not blame(FAILURE._replace(category=category))} == NOBODYS - {"none"}


def test_a_witness_carries_what_is_known_of_the_failure() -> None:
    (one,) = blame(FAILURE)
    assert (one.node, one.t, one.why, one.owner, one.run, one.attempt, one.fingerprint) == (
        "n1", 1000.0, "task 8 on n1: exit code 3", "alice", "r1", 1, "f")


def test_a_lost_node_is_blamed_and_not_who_failed_because_of_it() -> None:
    lost = FAILURE._replace(category="node_failure", culprits=("n2",), lost=(("n1", "no answer for 10 s"),))
    assert [(one.node, one.kind, one.why) for one in blame(lost)] == [("n1", "lost", "no answer for 10 s")]


@each(
    ("gone", "blamed"), [(1, 1), (2, 2), (3, 0), (4, 0)], ids=["one", "half", "most: the leader is cut off", "all"])
def test_who_sees_most_others_gone_blames_none_of_them(gone: int, blamed: int) -> None:
    lost = tuple((node, "no answer") for node in NODES[:gone])
    assert len(blame(FAILURE._replace(category="node_failure", confidence=0.9, lost=lost))) == blamed


def test_a_failure_of_most_nodes_is_no_nodes() -> None:
    assert blame(FAILURE._replace(category="gpu_hardware", confidence=0.9, culprits=NODES[:3])) == ()


def test_a_run_on_one_node_can_blame_it() -> None:
    alone = FAILURE._replace(nodes=("n1",), category="gpu_hardware", confidence=0.9)
    assert kinds(alone) == {"n1": "gpu"}


@each(
    ("culprits", "blamed"),
    [(("n1.cluster.local",), ("n1",)), (("elsewhere",), ()), (("n1", "n1.cluster", "elsewhere"), ("n1",)), ((), ())],
    ids=["with its domain", "no node of the attempt", "one of them twice", "none"],
)
def test_only_nodes_of_the_attempt_are_blamed(culprits: tuple[str, ...], blamed: tuple[str, ...]) -> None:
    assert tuple(kinds(FAILURE._replace(culprits=culprits))) == blamed


def test_the_only_node_is_not_blamed_for_an_end_that_nobody_can_explain() -> None:
    assert kinds(EARLY) != {} and kinds(EARLY._replace(nodes=("n1",))) == {}   # exit 3, since a file is not there


def test_a_node_whose_gpu_another_process_holds_is_out_at_once_and_for_a_day() -> None:
    held = FAILURE._replace(category="node_failure", confidence=0.88, fingerprint="node_failure:gpu.memory_held:x")
    assert kinds(held) == {"n1": "held"} and kinds(held._replace(culprits=NODES)) == {}
    (out,) = exclusions(blame(held), held.t, Suspects(), nodes=4)
    assert out.node == "n1" and 20 * 3600 < out.until_t - held.t < 30 * 3600
    other = blame(held._replace(culprits=("n2",), attempt=2, t=held.t + 60))
    assert exclusions((*blame(held), *other), held.t + 61, Suspects(), nodes=4) == ()   # the same on other nodes


# --- black holes --------------------------------------------------------------------------------------------------

EARLY = FAILURE._replace(lived_s=4.0, steps=0)


@each(
    ("failure", "kind"),
    [
        (EARLY, "short_cycle"),
        (EARLY._replace(steps=None), "short_cycle"),
        (EARLY._replace(category="native_crash", confidence=0.9), "short_cycle"),
        (EARLY._replace(lived_s=SHORT_CYCLE_S + 1), "first_to_fail"),
        (EARLY._replace(lived_s=None), "first_to_fail"),
        (EARLY._replace(steps=3), "first_to_fail"),
        (EARLY._replace(nodes=("n1",), category="native_crash"), "first_to_fail"),
        (EARLY._replace(culprits=("n1", "n2")), "first_to_fail"),
        (EARLY._replace(category="network", confidence=0.9), "network"),
        (EARLY._replace(category="gpu_hardware", confidence=0.9), "gpu"),
    ],
    ids=["dies within seconds", "no steps known", "crashes at once", "after minutes", "nobody knows when", "made steps",
         "on one node alone there is nobody to differ from", "two nodes at once", "the network is known to be it",
         "the GPU is known to be it"],
)
def test_a_node_that_kills_attempts_at_their_start_is_a_black_hole_once_the_run_goes_on_without_it(
    failure: Failure, kind: str
) -> None:
    assert {one.node: one.kind for one in confirm(failure) or blame(failure)}["n1"] == kind
    assert kinds(failure)["n1"] != "short_cycle", "a bug of one rank looks the same"


def test_two_runs_that_went_on_without_a_black_hole_keep_it_out_for_others() -> None:
    early = [EARLY._replace(run=run, t=1000.0 + 60 * number) for number, run in enumerate(("r1", "r2"))]
    known = [one for failure in early for one in confirm(failure)]
    assert [one.node for one in exclusions(known, 1130.0, Suspects(), nodes=4)] == ["n1"]
    assert exclusions([one for failure in early for one in blame(failure)], 1130.0, Suspects(), nodes=4) == ()


@each("rule", ["network.dns", "network.dns_name"])
def test_a_name_that_does_not_resolve_speaks_against_no_node(rule: str) -> None:
    assert blame(FAILURE._replace(category="network", confidence=0.9, fingerprint=f"network:{rule}:x")) == ()


def test_a_bug_that_crashes_whatever_node_excludes_none() -> None:
    found = [one for number, node in enumerate(["n1", "n1", "n2", "n0", "n0"])
             for one in blame(EARLY._replace(attempt=number, culprits=(node,)))]
    assert exclusions(found, 1010.0, Suspects(max_excluded="100%"), nodes=1) == ()


FAILURES = st.builds(
    Failure, run=st.just("r1"), owner=st.just("alice"), t=st.floats(0, 1e9), attempt=st.integers(1, 9),
    nodes=st.lists(st.sampled_from(["n0", "n1", "n2", "n3", "n4"]), unique=True, max_size=5).map(tuple),
    category=st.sampled_from([*NAMES, "none", "of_tomorrow"]), confidence=st.floats(0, 1),
    culprits=st.lists(st.sampled_from(["n0", "n1", "n9", "n2.local", ""]), max_size=5).map(tuple),
    lost=st.lists(st.tuples(st.sampled_from(["n0", "n3", "x"]), st.just("gone")), max_size=3).map(tuple),
    lived_s=st.none() | st.floats(0, 1e6), steps=st.none() | st.integers(0, 9),
)


@given(FAILURES)
def test_blame_is_for_a_few_of_the_attempts_nodes_and_never_for_users_errors(failure: Failure) -> None:
    blamed = blame(failure)
    assert {one.node for one in blamed} <= set(failure.nodes)
    assert len(blamed) == len({one.node for one in blamed}) <= max(1, len(failure.nodes) // 2)
    assert all(one.kind in KINDS for one in blamed)
    assert not (blamed and failure.category in NOBODYS)


def test_a_verdict_of_confidence_counts_as_such() -> None:
    assert kinds(FAILURE._replace(category="hang", confidence=CONFIDENT)) == {"n1": "hang"}
    assert kinds(FAILURE._replace(category="hang", confidence=CONFIDENT - 0.01)) == {"n1": "first_to_fail"}
