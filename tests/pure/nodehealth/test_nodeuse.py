"""The ledger's lines of how long nodes were used, and whom the rates made of them accuse."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from benchmarks.slow import poisson
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.launch.settings import Suspects
from safelaunch.nodehealth.ledger import CLEARED, RATE, NodeEvidence, exclusions
from safelaunch.nodehealth.ledgerlines import MAX_LINE_BYTES, parse_line, render_line
from safelaunch.nodehealth.nodeuse import (
    DAY_S,
    NodeDays,
    NodeUse,
    judge_fleet,
    judge_rates,
    parse_use,
    rate_evidence,
    render_use,
)
from tests.tables import each

NOW = 400 * DAY_S
FLEET = tuple(f"n{number}" for number in range(48))
USE = NodeUse(("n1", "n2"), NOW, 3600.0, "run1", 1, "big")


def failed(node: str, days_ago: float, attempt: int, kind: str = "network", **more: str) -> NodeEvidence:
    return NodeEvidence(node, kind, NOW - days_ago * DAY_S, "why", "ann", **{"run": "run1", **more}, attempt=attempt)


def used(attempt: int, days_ago: float, days: float, nodes: tuple[str, ...] = FLEET) -> NodeUse:
    """An attempt that ended so long ago."""
    return NodeUse(nodes, NOW - days_ago * DAY_S, days * DAY_S, "run1", attempt)


def accused(evidences: Sequence[NodeEvidence], uses: Sequence[NodeUse]) -> list[str]:
    """The nodes that a run excludes for their rate alone."""
    rates = judge_fleet(evidences, uses, "", NOW)
    found = rate_evidence(evidences, uses, rates, NOW)
    kept_out = exclusions(found, NOW, Suspects(max_excluded="48"), nodes=8)
    assert {one.kind for one in found} <= {RATE}
    return [one.node for one in kept_out]


ATTEMPTS = [used(number, 84.0 - 7 * number, 7.0) for number in range(12)]   # 84 days without a pause
OTHERS = [failed(f"n{number}", 80.0 - 7 * week, week, fingerprint=f"crc:{number} {week}") for number in range(2, 48)
          for week in range(2)]
AGAIN = [failed("n1", 84.0 - 7 * number, number, fingerprint=f"crc:{number}") for number in range(12)]


@each(("evidences", "uses", "expected"), [
    (AGAIN, ATTEMPTS, ["n1"]),
    (AGAIN[:4], ATTEMPTS, []),
    ([*AGAIN, *OTHERS], ATTEMPTS, []),
    ([*AGAIN, NodeEvidence("n1", CLEARED, NOW - 3 * DAY_S, "a new GPU", "ann")], ATTEMPTS, []),
    (AGAIN, ATTEMPTS[-1:], []),
    (AGAIN, [], []),
    ([failed("n1", 7.0, 11) for _ in range(12)], ATTEMPTS, []),
    ([failed("n1", 7.0 - number / 100, 11, fingerprint="crc:1") for number in range(12)], ATTEMPTS, []),
    ([one.__class__(**{**vars(one), "kind": "first_to_fail"}) for one in AGAIN], ATTEMPTS, []),
    ([one.__class__(**{**vars(one), "run": ""}) for one in AGAIN], ATTEMPTS, []),
    ([failed("n1", 300.0 + number, number) for number in range(12)], ATTEMPTS, []),
], ids=["every-week", "four-times", "as-the-others-do", "cleared", "most-attempts-unknown", "no-use-known",
        "one-failure", "one-cause-on-one-day", "only-first-to-fail", "a-persons-word", "long-ago"])
def test_who_is_excluded_for_a_rate(
    evidences: list[NodeEvidence], uses: list[NodeUse], expected: list[str]
) -> None:
    assert accused(evidences, uses) == expected


def test_a_failed_attempt_counts_once_whatever_its_verdict_and_the_checks_after_it_say() -> None:
    checks = [failed("n1", 83.9 - 7 * number, number, "checks_failed", fingerprint=f"checks: shm {number}")
              for number in range(12)]
    for count in range(1, 13):
        alone, more = (judge_fleet(found, ATTEMPTS, "", NOW)
                       for found in (AGAIN[:count], [*AGAIN[:count], *checks[:count]]))
        assert [one.failures for one in more] == [one.failures for one in alone]


def test_that_a_node_was_slow_is_no_failure_of_it() -> None:
    slow = [failed("n1", 84.0 - 7 * number, number, "slow") for number in range(12)]
    assert not sum(rate.failures for rate in judge_fleet(slow, ATTEMPTS, "", NOW))


def test_an_exclusion_for_a_rate_ends_a_half_life_after_the_last_failure() -> None:
    rates = judge_fleet(AGAIN, ATTEMPTS, "", NOW)
    (found,) = rate_evidence(AGAIN, ATTEMPTS, rates, NOW)
    (kept_out,) = exclusions([found], NOW, Suspects(), nodes=8)
    assert found.t == max(one.t for one in AGAIN) and kept_out.until_t == pytest.approx(found.t + 7 * DAY_S)
    assert found.why == "12 failures in 83 d of use, at the rate of the other nodes 0.011"


def test_a_cause_on_nodes_that_have_none_in_common_is_no_failure_of_theirs() -> None:
    same = [failed(f"n{number % 2}", 84.0 - 7 * number, number, fingerprint="crc:1") for number in range(12)]
    assert not sum(rate.failures for rate in judge_fleet(same, ATTEMPTS, "", NOW))


def test_another_clusters_use_does_not_count() -> None:
    assert judge_fleet([], [USE], "", NOW) == [] and len(judge_fleet([], [USE], "big", NOW)) == 2


def test_no_node_has_more_days_than_the_window() -> None:
    shared = [used(number, 0.0, 500.0) for number in range(3)]   # three jobs at once on shared nodes
    assert {rate.days for rate in judge_fleet([], shared, "", NOW)} == {90.0}


def test_of_healthy_fleets_that_are_young_fewer_nodes_are_accused_than_the_rule_allows() -> None:
    """All nodes fail alike. 0.99 would allow 1 %; `python -m benchmarks.slow young` has the long form."""
    rng, judged, wrong = random.Random(11), 0, 0
    for _ in range(120):
        nodes = FLEET[:rng.choice((2, 4, 16, 48))]
        days, rate = rng.choice((0.02, 0.5, 3.0)), rng.choice((0.003, 0.03, 0.3, 3.0))
        uses = [used(attempt, 3.0 - attempt * days / 20, days / 20, nodes) for attempt in range(20)]
        evidences = [failed(node, 3.0 - attempt * days / 20, attempt, fingerprint=f"crc:{node}{attempt}")
                     for attempt in range(20) for node in nodes if poisson(rng, rate * days / 20)]
        judged, wrong = judged + len(nodes), wrong + len(accused(evidences, uses))
    assert wrong <= 0.002 * judged, f"{wrong} of {judged}"


def test_a_use_is_a_line_that_reads_back_and_is_no_evidence() -> None:
    line = render_use(USE)
    assert parse_use(line) == USE and parse_line(line, "ann") is None and line.count(b"\n") == 1
    assert parse_use(b'{"v":1,"t":1' + line) == USE, "a torn write leaves no newline"
    assert parse_use(render_line(AGAIN[0])) is None


def test_a_use_of_many_odd_names_takes_several_lines_that_fit() -> None:
    nodes = tuple(f"rack{number % 37}-{chr(97 + number % 23)}x{number * 7919}" for number in range(1000))
    lines = render_use(NodeUse(nodes, NOW, 5.0, "run1", 1)).splitlines(keepends=True)
    parsed = [parse_use(line) for line in lines]
    assert max(map(len, lines)) <= MAX_LINE_BYTES and len(lines) > 1
    assert {node for use in parsed if use is not None for node in use.nodes} == set(nodes)


@each("change", [
    ('"used_s":3600.0', '"used_s":-1'), ('"used_s":3600.0', '"used_s":1e999'), ('"used_s":3600.0', '"used_s":NaN'),
    ('"n[1-2]"', '"n[1-99999999]"'), ('"n[1-2]"', '"@all"'), ('"n[1-2]"', "7"), ('"v":1', '"v":2'),
    ('"run":"run1"', '"run":""'), ('"run":"run1"', '"run":[]'), ('"attempt":1', '"attempt":"x"'), (":", ";"),
])
def test_an_odd_use_is_skipped(change: tuple[str, str]) -> None:
    assert change[0].encode() in render_use(USE)
    assert parse_use(render_use(USE).replace(change[0].encode(), change[1].encode())) is None


@given(st.binary(max_size=60))
def test_whatever_stands_in_a_line_is_no_error(noise: bytes) -> None:
    line = render_use(USE)
    for torn in (noise, line[:40] + noise, noise + line[20:]):
        assert parse_use(torn) is None or torn.endswith(line[20:])


def fleet(*special: NodeDays, nodes: int = 48, days: float = 30.0, failures: int = 14) -> list[NodeDays]:
    """Nodes of which the first ones have failed once each."""
    return [NodeDays(f"n{n}", int(n < failures), days) for n in range(nodes - len(special))] + list(special)


# What one node has done in the fleet of 48 with 14 other failures in 30 days; whether to exclude it.
CASES: list[tuple[str, NodeDays, bool]] = [
    ("failed once", NodeDays("bad", 1, 30.0), False),
    ("failed four times", NodeDays("bad", 4, 30.0), False),
    ("failed ten times", NodeDays("bad", 10, 30.0), True),
    ("is new and failed once", NodeDays("bad", 1, 0.1), False),
    ("is new and failed three times", NodeDays("bad", 3, 0.1), False),
    ("is new and failed seven times", NodeDays("bad", 7, 1.0), True),
    ("failed nine times in years", NodeDays("bad", 9, 900.0), False),
]


@each(("what", "node", "is_bad"), CASES)
def test_who_is_excluded(what: str, node: NodeDays, is_bad: bool) -> None:
    bad = [rate.node for rate in judge_rates(fleet(node)) if rate.is_bad]
    assert bad == (["bad"] if is_bad else [])


def test_a_bad_node_of_four_does_not_hide_behind_its_own_failures() -> None:
    rates = judge_rates([NodeDays("a", 0, 30), NodeDays("b", 1, 30), NodeDays("c", 0, 30), NodeDays("d", 15, 30)])
    assert [rate.node for rate in rates if rate.is_bad] == ["d"]
    assert rates[0].expected == pytest.approx(0.5)


def test_a_fleet_of_one_or_of_unused_nodes_has_no_verdict() -> None:
    assert judge_rates([NodeDays("a", 9, 3)]) == judge_rates([NodeDays("a", 9, 3), NodeDays("b", 0, 0)]) == []


def test_a_fleet_without_failures_accuses_nobody_and_still_has_a_rate() -> None:
    rates = judge_rates(fleet(failures=0))
    assert len(rates) == 48 and all(rate.expected > 0 and rate.probability < 0.01 for rate in rates)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1e9)), max_size=8))
def test_no_fleet_is_an_error(counts: list[tuple[int, float]]) -> None:
    rates = judge_rates([NodeDays(f"n{n}", failures, days) for n, (failures, days) in enumerate(counts)])
    assert all(0 <= rate.probability <= 1 for rate in rates)


def test_a_node_of_next_to_no_use_beside_a_usual_one_is_no_error() -> None:
    assert [one.node for one in judge_rates([NodeDays("a", 0, 1e-20), NodeDays("b", 0, 90)])] == ["a", "b"]


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0.01, 1000)), min_size=2, max_size=30))
def test_one_more_failure_never_makes_a_node_look_better(counts: list[tuple[int, float]]) -> None:
    before = [NodeDays(f"n{n}", failures, days) for n, (failures, days) in enumerate(counts)]
    after = [before[0]._replace(failures=before[0].failures + 1), *before[1:]]
    rate, more = (next(one for one in judge_rates(nodes) if one.node == "n0") for nodes in (before, after))
    assert more.probability >= rate.probability - 1e-9 and more.expected == rate.expected


def test_of_fleets_that_fail_evenly_next_to_no_node_is_excluded() -> None:
    rng = random.Random(7)
    nodes = [NodeDays(f"n{n}", 0, 0.0) for n in range(96)]
    wrong = sum(rate.is_bad for _ in range(100) for rate in judge_rates(
        [node._replace(failures=poisson(rng, 0.3), days=30.0) for node in nodes]))
    assert wrong <= 2   # of 9,600; `python -m benchmarks.slow rates` has the long form
