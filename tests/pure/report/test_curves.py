"""Curves of a report: thinned, with spikes and changes of pace."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.report import curves
from safelaunch.report.curves import Curve
from safelaunch.verbs.report.reportcurves import name_figures

AUTO = ("auto", "auto", "auto")


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=400), st.integers(2, 50))
def test_a_thinned_curve_keeps_its_least_and_greatest_value_in_order(values: list[float], most: int) -> None:
    points = list(enumerate(values))
    kept = curves.thin(points, most)
    assert len(kept) <= max(most, 2) and kept == sorted(kept) and set(kept) <= set(points)
    assert {min(values), max(values)} <= {value for _, value in kept}


def test_a_spike_and_a_nan_are_found_and_noise_is_not() -> None:
    values = [2 + 0.01 * (step * 7 % 13) for step in range(300)]
    values[200], values[250] = 9.0, math.nan
    found = curves.spikes([Curve(1, tuple(enumerate(values)))])
    assert [spike.step for spike in found] == [250, 200]
    assert found[0].usual is None and found[1].value == 9.0


def test_a_pace_that_changes_for_good_is_found_with_its_step() -> None:
    times = [(step, (1.0 if step < 400 else 1.3) + 0.001 * (step * 7 % 11)) for step in range(800)]
    (found,) = curves.changes([Curve(1, tuple(times))], 0.05)
    assert 390 <= found.step <= 410 and round(found.to_s, 1) == 1.3


def test_a_loss_belongs_to_the_step_of_its_line_and_each_step_counts_once() -> None:
    text = (b"step 1 loss: 3.0 step_time: 0.5\nloss: 2.5 step: 2\r[n1:1]: step 2 loss: 9\nnote\nloss: 2.0\n"
            b"step 3 loss: 1\n")
    losses, times = name_figures(text, AUTO)
    assert losses == [(1, 3.0), (2, 2.5), (3, 1.0)] and times == [(1, 0.5)]
