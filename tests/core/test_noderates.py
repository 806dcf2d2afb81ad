"""A node that fails again and again is told from bad luck."""

from __future__ import annotations

import math
import random

import pytest
from benchmarks.slow import poisson
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.core.noderates import (
    LEAST_SHAPE,
    MOST_SHAPE,
    NodeDays,
    fit_shape,
    judge_rates,
    upper_gamma,
)
from tests.tables import each


def by_sum(shape: int, x: float) -> float:
    """P(G > x) of an integer shape: fewer than `shape` events of a Poisson with mean x."""
    return math.fsum(math.exp(-x + k * math.log(x) - math.lgamma(k + 1)) for k in range(shape))


def by_integral(shape: float, x: float, pieces: int = 20_000) -> float:
    """The same by Simpson's rule on P(G < x); t = u⁴ removes the pole at 0 of shapes from 0.25 on."""
    top = x ** 0.25

    def height(u: float) -> float:
        return 4 * u ** (4 * shape - 1) * math.exp(-u ** 4) if u else (4.0 if shape == 0.25 else 0.0)

    width = top / pieces
    inner = math.fsum((4 if n % 2 else 2) * height(n * width) for n in range(1, pieces))
    return float(1 - (height(0) + inner + height(top)) * width / 3 / math.gamma(shape))


@each(("shape", "x"), [(shape, x) for shape in (1, 2, 5, 19, 60, 400) for x in (0.01, 0.7, 3.0, 19.0, 60.5, 500.0)])
def test_whole_shapes_agree_with_exact_sums(shape: int, x: float) -> None:
    assert upper_gamma(shape, x) == pytest.approx(by_sum(shape, x), rel=1e-9, abs=1e-13)


@each(("shape", "x"), [(0.5, 0.3), (0.75, 2.0), (1.1, 1.01), (2.6, 1.0), (4.1, 9.0), (6.2, 3.0)])
def test_other_shapes_agree_with_an_integral(shape: float, x: float) -> None:
    assert upper_gamma(shape, x) == pytest.approx(by_integral(shape, x), abs=1e-8)


@given(st.floats(1e-6, 300))
def test_shape_one_half_agrees_with_the_error_function(x: float) -> None:
    assert upper_gamma(0.5, x) == pytest.approx(math.erfc(math.sqrt(x)), rel=1e-8, abs=1e-13)


@given(st.floats(0.05, 300), st.floats(0, 600), st.floats(0, 50))
def test_more_is_less_probable(shape: float, x: float, more: float) -> None:
    assert 0 <= upper_gamma(shape, x + more) <= upper_gamma(shape, x) + 1e-12 <= 1 + 1e-12


@each(("shape", "x"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.nan)])
def test_nonsense_is_refused(shape: float, x: float) -> None:
    with pytest.raises(ValueError, match="upper_gamma"):
        upper_gamma(shape, x)


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
    assert rates[0].expected == pytest.approx(0.5) and rates[0].posterior == pytest.approx(15.3 / 48)


def test_a_fleet_of_one_or_of_unused_nodes_has_no_verdict() -> None:
    assert judge_rates([NodeDays("a", 9, 3)]) == judge_rates([NodeDays("a", 9, 3), NodeDays("b", 0, 0)]) == []


def test_a_fleet_without_failures_accuses_nobody_and_still_has_a_rate() -> None:
    rates = judge_rates(fleet(failures=0))
    assert len(rates) == 48 and all(rate.prior > 0 and rate.probability < 0.01 for rate in rates)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1e9)), max_size=8))
def test_no_fleet_is_an_error(counts: list[tuple[int, float]]) -> None:
    rates = judge_rates([NodeDays(f"n{n}", failures, days) for n, (failures, days) in enumerate(counts)])
    assert all(0 <= rate.probability <= 1 for rate in rates)


def test_a_node_of_next_to_no_use_beside_a_usual_one_is_no_error() -> None:
    assert [one.node for one in judge_rates([NodeDays("a", 0, 1e-20), NodeDays("b", 0, 90)])] == ["a", "b"]


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0.01, 1000)), min_size=2, max_size=30))
def test_one_more_failure_never_makes_a_node_look_better(counts: list[tuple[int, float]]) -> None:
    before = [NodeDays(f"n{n}", failures, days) for n, (failures, days) in enumerate(counts)]
    after = [before[0]._replace(failures=before[0].failures + 50), *before[1:]]
    def rank_of(nodes: list[NodeDays]) -> float:
        return next(rate.posterior / rate.prior for rate in judge_rates(nodes) if rate.node == "n0")
    assert LEAST_SHAPE <= fit_shape(before) <= MOST_SHAPE
    assert rank_of(after) >= rank_of(before) * (1 - 1e-9)


def test_of_fleets_that_fail_evenly_next_to_no_node_is_excluded() -> None:
    rng = random.Random(7)
    nodes = [NodeDays(f"n{n}", 0, 0.0) for n in range(96)]
    wrong = sum(rate.is_bad for _ in range(100) for rate in judge_rates(
        [node._replace(failures=poisson(rng, 0.3), days=30.0) for node in nodes]))
    assert wrong <= 2   # of 9,600; `python -m benchmarks.slow rates` has the long form
