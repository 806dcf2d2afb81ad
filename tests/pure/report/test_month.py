"""Lost time by cause, intervals of failure rates, and advice: tables of values with known answers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.report import month, tuning
from safelaunch.run.fold.state import Attempt
from safelaunch.status.costs import Track
from safelaunch.status.shares import Span
from tests.tables import each


def attempt(number: int, category: str | None, ended: str = "failed") -> Attempt:
    return Attempt(number, "12", ("n0",), 0.0, ended=ended, ended_t=1.0, category=category)


def test_each_lost_second_belongs_to_the_failure_before_it() -> None:
    attempts = [attempt(1, "network"), attempt(2, "time_limit", "interrupted"), attempt(3, None)]
    spans = [Span("queue", 0, 10), Span("start", 10, 20, 1), Span("useful", 20, 50, 1), Span("down", 50, 60, 1),
             Span("down", 60, 61), Span("start", 61, 65, 2), Span("redone", 65, 70, 2), Span("useful", 70, 90, 2),
             Span("queue", 90, 99), Span("start", 99, 101, 3), Span("hang", 101, 120, 3)]
    found = [(span.kind, cause) for span, cause, _ in month.causes_of(spans, attempts)]
    assert found == [
        ("queue", "first start"), ("start", "first start"), ("down", "network"), ("down", "network"),
        ("start", "network"), ("redone", "network"), ("queue", "time_limit"), ("start", "time_limit"),
        ("hang", "unknown")]


def test_what_is_before_the_window_is_cut_off() -> None:
    spans = [Span("useful", 0, 10, 1), Span("down", 10, 20, 1), Span("useful", 20, 30, 2)]
    assert [(one.kind, one.seconds) for one in month.clip(spans, 15)] == [("down", 5), ("useful", 10)]


def test_the_queue_takes_time_and_no_node_hours() -> None:
    lost = (month.LostSpan("gpu_hardware", "queue", 100.0), month.LostSpan("gpu_hardware", "redone", 30.0))
    run = month.MonthOfRun("bloom", "1a2b3c4d", "/r", "", "me", 0.0, 1.0, None, 4, None, 0, {}, lost,
                           (month.RunFailure("gpu_hardware", ("n1",), 30.0, True, None),), {"n1": 2.0}, None, None,
                           0.0, 1.0)
    one, = month.lost_by_cause([run])
    assert (one.cause, one.seconds, one.node_seconds, one.failures) == ("gpu_hardware", 130.0, 120.0, 1)
    node, = month.lost_by_node([run])
    assert (node.node, node.failures, node.days, node.lost_s, node.causes) == ("n1", 1, 2.0, 30.0, ("gpu_hardware",))


@each(("failures", "low", "high"), [
    # Jeffreys' interval for a Poisson count: χ²(2k+1)/2 at 2.5 and 97.5 % (tables of χ²).
    (0, 0.000491, 2.511943), (1, 0.107898, 4.674202), (10, 5.141423, 17.739417)])
def test_the_interval_of_a_rate_is_that_of_tables(failures: int, low: float, high: float) -> None:
    rate = tuning.failure_rate(failures, 1.0)
    assert rate is not None
    assert [rate.low, rate.high] == pytest.approx([low, high], rel=1e-3)


def test_without_use_there_is_no_rate() -> None:
    assert tuning.failure_rate(0, 0.0) is None and tuning.failure_rate(3, math.inf) is None


@given(st.integers(0, 2000), st.floats(0.001, 0.999))
def test_a_quantile_is_where_its_share_lies(failures: int, share: float) -> None:
    value = tuning.quantile(failures, share)
    assert value > 0 and 1 - tuning.above(failures, value) == pytest.approx(share, abs=1e-6)


def test_the_best_interval_is_youngs_and_costs_least() -> None:
    found = tuning.advise_saves(cost_s=60.0, mtbf_s=6 * 3600.0, restart_s=300.0, now_s=7200.0)
    assert found.best_s == pytest.approx(math.sqrt(2 * 60 * 6 * 3600))
    for now_s in (found.best_s / 2, found.best_s * 2):
        other = tuning.advise_saves(60.0, 6 * 3600.0, 300.0, now_s)
        assert other.now_waste is not None and other.now_waste > found.best_waste
    assert tuning.advise_saves(900.0, 100.0, 0.0, None).best_s == 900.0   # never shorter than a save


def test_a_save_costs_what_pieces_with_one_take_longer() -> None:
    points, saves, t = [(0.0, 0)], [], 0.0
    for piece in range(1, 41):
        t += 60.0 + 0.01 * (piece % 3) + (12.0 if piece % 4 == 0 else 0.0)
        points.append((t, piece * 10))
        saves += [(t, piece * 10)] if piece % 4 == 0 else []
    track = Track(1, "12", 0.0, 0, tuple(points))
    assert tuning.save_cost_s([track], saves) == pytest.approx(12.0, abs=0.1)
    assert tuning.saves_apart_s(saves) == pytest.approx(252.0, abs=0.2)
    assert tuning.save_cost_s([track], saves[:3]) is None       # too few to tell
    assert tuning.save_cost_s([track], [(0.0, step + 5) for _, step in saves]) is None   # it does not stand out


@each(("failures", "node_days", "nodes", "job_s", "spares"), [
    (0, 1000.0, 4, 3600.0, 0),             # nothing is expected
    (30, 1000.0, 100, 86400.0, 6),         # 3.05 failures are expected; Poisson alone would say 6
    (1, 10.0, 100, 86400.0 * 30, None),    # hundreds
])
def test_spares_are_enough_for_nineteen_jobs_of_twenty(failures: int, node_days: float, nodes: int, job_s: float,
                                                       spares: int | None) -> None:
    rate = tuning.failure_rate(failures, node_days)
    assert rate is not None and tuning.spares_for(rate, nodes, job_s) == spares
