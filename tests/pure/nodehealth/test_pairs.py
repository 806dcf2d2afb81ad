"""Two rounds of pairs name the badly connected node, whichever it is, and no other."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.nodehealth.pairs import BusVerdict, Pair, PairRate, first_pairs, judge_pairs, second_pairs
from tests.tables import each

Rate = Callable[[Pair], PairRate]


def judged(nodes: list[str], rate: Rate) -> dict[str, BusVerdict]:
    first = [rate(pair) for pair in first_pairs(nodes)]
    second = [rate(pair) for pair in second_pairs(first, nodes, 0.015)]
    return {node: told.link for node, told in judge_pairs(first, second, 0.015).items()}


def with_bad(bad: set[str], gb_s: float | None) -> Rate:
    return lambda pair: PairRate(pair, gb_s if bad & set(pair) else 10.0, "hangs")


@given(st.integers(4, 200), st.data(), st.sampled_from([None, 5.0, 7.9]))
def test_one_bad_node_is_named_and_every_other_is_good(count: int, data: st.DataObject, gb_s: float | None) -> None:
    nodes = [f"n{number}" for number in range(count)]
    bad = data.draw(st.sampled_from(nodes[:count - count % 2]))   # one that is left over is seen once
    told = judged(nodes, with_bad({bad}, gb_s))
    assert told == {node: BusVerdict.BAD if node == bad else BusVerdict.GOOD for node in told}
    assert set(nodes) - set(told) <= ({"n4"} if count == 5 else set()), "of five no partner is left for the fifth"


@given(st.integers(1, 60), st.floats(8.5, 10.0))
def test_healthy_pairs_accuse_nobody(pairs: int, least: float) -> None:
    nodes = [f"n{number}" for number in range(2 * pairs)]
    told = judged(nodes, lambda pair: PairRate(pair, least if pair.first == "n0" else 10.0))
    assert set(told.values()) == {BusVerdict.GOOD}


def test_on_a_network_that_others_use_hardly_a_healthy_node_is_accused() -> None:
    rng, nodes = random.Random(3), [f"n{number}" for number in range(64)]
    told = [judged(nodes, lambda pair: PairRate(pair, 10 * math.exp(rng.gauss(0, 0.15)))) for _ in range(100)]
    assert sum(one == BusVerdict.BAD for found in told for one in found.values()) <= 6, "0.1 % of 6,400"


@each("nodes", [4, 5, 9])
def test_pairs_of_a_round_share_no_node(nodes: int) -> None:
    names = [f"n{number}" for number in range(nodes)]
    first = [with_bad({"n0"}, None)(pair) for pair in first_pairs(names)]
    for pairs in (first_pairs(names), second_pairs(first, names, 0.015)):
        used = [node for pair in pairs for node in pair]
        assert len(used) == len(set(used))


def test_of_two_nodes_whose_pair_fails_neither_is_named() -> None:
    assert judged(["a", "b"], with_bad({"b"}, None)) == {"a": BusVerdict.UNKNOWN, "b": BusVerdict.UNKNOWN}


def test_a_bad_link_between_two_nodes_that_are_well_with_others_names_neither() -> None:
    told = judged(["a", "b", "c", "d"], lambda pair: PairRate(pair, None if set(pair) == {"a", "b"} else 10.0))
    assert set(told.values()) == {BusVerdict.GOOD}


def test_a_left_over_node_gets_its_turn_and_one_failure_does_not_name_it() -> None:
    assert judged(["a", "b", "c"], with_bad(set(), None))["c"] == BusVerdict.GOOD
    told = judged(["a", "b", "c"], with_bad({"c"}, None))
    assert told == {"a": BusVerdict.GOOD, "b": BusVerdict.GOOD, "c": BusVerdict.UNKNOWN}


def test_pairs_that_could_not_be_measured_are_unknown_and_cause_no_second_round() -> None:
    first = [PairRate(pair, None, "no PyTorch", True) for pair in first_pairs(["a", "b", "c", "d"])]
    assert second_pairs(first, ["a", "b", "c", "d"], 0.015) == ()
    assert {told.link for told in judge_pairs(first, [], 0.015).values()} == {BusVerdict.UNKNOWN}
