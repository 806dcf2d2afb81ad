"""The slow node of a fleet: found by rates, and no healthy node accused. Thousands of fleets: benchmarks.slow."""

from __future__ import annotations

import math
import random

from benchmarks.slow import accused
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.nodehealth.slow.fleet import FEW_ROUNDS, LARGE, LOOK, TOLERANCE, judge_fleet, measured_again
from tests.tables import each


@each("nodes", [4, 8, 16, 48, 256])
def test_a_node_slower_by_2_5_percent_is_found_and_no_other_accused(nodes: int) -> None:
    rng = random.Random(nodes)
    fleets = max(20, 2000 // nodes)
    told = [accused(rng, nodes, 0.025, 0.005, 0.0) for _ in range(fleets)]
    assert sum("0" in one for one in told) >= 0.95 * fleets
    assert sum(len(one) - ("0" in one) for one in told) <= 1


@each("nodes", [4, 8, 16])
def test_a_few_healthy_nodes_that_differ_by_a_third_of_the_tolerance_accuse_nobody(nodes: int) -> None:
    rng = random.Random(f"differ {nodes}")   # four accused 1.3 % of their nodes so
    assert sum(len(accused(rng, nodes, 0.0, 0.005, 0.005)) for _ in range(3200 // nodes)) <= 8


@each("nodes", [4, 8, 16])
def test_what_a_round_changes_for_all_nodes_alike_hides_no_slow_node(nodes: int) -> None:
    rng = random.Random(f"drift {nodes}")   # GPUs that warm up; a machine that nodes share
    rounds = [{str(number): math.exp(rng.gauss(0, 0.005) - 0.01 * turn - (0.025 if number == 0 else 0))
               for number in range(nodes)} for turn in range(FEW_ROUNDS)]
    assert [score.node for score in judge_fleet(rounds) if score.is_slow] == ["0"]


def test_one_bad_measurement_of_a_node_hides_no_other_one_that_is_slow() -> None:
    rng = random.Random("bad")
    rounds = [{name: math.exp(rng.gauss(0, 0.005) - (0.025 if name == "d" else 0)) for name in "abcd"}
              for _ in range(FEW_ROUNDS)]
    rounds[6]["a"] *= 0.95
    assert [score.node for score in judge_fleet(rounds) if score.is_slow] == ["d"]


@each("noise", [0.0, 0.005, 0.02, 0.1])
def test_a_healthy_fleet_accuses_nobody_however_noisy_it_is(noise: float) -> None:
    rng = random.Random(f"healthy {noise}")
    assert sum(len(accused(rng, nodes, 0.0, noise, 0.0)) for nodes in (4, 48, 256) for _ in range(20)) <= 2


def test_a_steady_node_that_is_slower_by_less_than_the_tolerance_is_not_slow() -> None:
    rates = {str(number): 1.0 for number in range(20)} | {"0": 1 - TOLERANCE * 0.9}
    assert not any(score.is_slow for score in judge_fleet([rates, {"0": rates["0"]}, {"0": rates["0"]}]))


def test_one_bad_measurement_does_not_make_a_node_slow() -> None:
    rates = {str(number): 1.0 + number / 100_000 for number in range(LARGE)}
    first = {**rates, "0": 0.8}
    assert "0" in measured_again([first], TOLERANCE)
    assert not any(score.is_slow for score in judge_fleet([first, {"0": rates["0"]}, {"0": rates["0"]}]))
    few = {name: rates[name] for name in "0123"}
    assert not any(score.is_slow for score in judge_fleet([{**few, "0": 0.8}, *[few] * (FEW_ROUNDS - 1)]))


def test_a_node_that_was_measured_once_is_never_slow() -> None:
    assert not any(score.is_slow for score in judge_fleet([{"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.1}]))


def test_of_two_nodes_nobody_can_say_which_is_slow() -> None:
    two = {"a": 1.0, "b": 0.5}
    assert (measured_again([two], TOLERANCE), judge_fleet([two] * 3)) == ((), ())


def test_a_quiet_large_fleet_is_not_measured_again() -> None:
    assert measured_again([{str(number): 1.0 for number in range(LARGE)}], TOLERANCE) == ()


@each(("slow_by", "rounds"), [(0.0, LOOK), (0.01, FEW_ROUNDS), (0.1, LOOK)])
def test_a_few_nodes_are_all_measured_until_it_is_clear_which_of_them_is_slow(slow_by: float, rounds: int) -> None:
    rates, taken = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0 - slow_by}, 1
    while again := measured_again([rates] * taken, TOLERANCE):
        assert again == tuple(rates)
        taken += 1
    assert taken == rounds


def test_several_slow_nodes_are_all_measured_again_and_found() -> None:
    rates = {str(number): 1.0 + number / 100_000 for number in range(LARGE)}
    rates |= {str(number): 0.9 for number in range(12)}
    rounds = [rates]
    while again := measured_again(rounds, TOLERANCE):
        rounds.append({node: rates[node] for node in again})
    assert {score.node for score in judge_fleet(rounds) if score.is_slow} == {str(number) for number in range(12)}


@given(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=40), st.floats(1e-3, 1e3))
def test_the_unit_of_the_rates_changes_no_score(values: list[float], unit: float) -> None:
    rates = {str(number): value for number, value in enumerate(values)}
    scores = {score.node: score for score in judge_fleet([rates, rates])}
    for score in judge_fleet([{node: rate * unit for node, rate in rates.items()}] * 2):
        assert math.isclose(score.deficit, scores[score.node].deficit, rel_tol=1e-6, abs_tol=1e-6)
