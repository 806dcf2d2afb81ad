"""A lasting drop of speed is told from noise, from pauses and from restarts."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from benchmarks.slow import step_times
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.nodehealth.slow.changepoint import (
    ALARM,
    DELAY,
    FLOOR,
    KEPT,
    LASTING,
    LEARN,
    SETTLE,
    Excursion,
    PaceChange,
    PaceWatch,
    StepTime,
    follow,
    noise_of,
    restart,
)
from tests.tables import each

# The last lines before a training of 48 nodes lost 5 %, and the first ones after it.
DROP_STEP = 42_783
BEFORE_S, AT_S, AFTER_S = (105.16, 105.17, 106.25), (110.17, 111.14), 111.0
PAUSE_S = 640.0


def play(paces: Iterable[StepTime], watch: PaceWatch | None = None) -> tuple[PaceWatch, list[PaceChange]]:
    """The watch after all values, and what it has reported."""
    known, told = watch or PaceWatch(0.05), []
    for pace in paces:
        known, change = follow(known, pace)
        told += [change] if change else []
    return known, told


def chronicle(seed: int, until: int = 43_100, drops: bool = True) -> list[StepTime]:
    """The run around its drop: 0.3 % of noise, a checkpoint each 100 iterations, an evaluation each 1000."""
    rng, paces = random.Random(seed), []
    for step in range(41_900, until):
        s = (AFTER_S if drops and step > DROP_STEP else 105.2) * (1 + rng.gauss(0, 0.003))
        if DROP_STEP - 3 <= step <= DROP_STEP + 1:
            s = (*BEFORE_S, *AT_S)[step - DROP_STEP + 3] if drops else BEFORE_S[0]
        paces.append(StepTime(step, s + PAUSE_S * (step % 1000 == 1) + 40 * (step % 100 == 1)))
    return paces


def test_the_drop_of_the_chronicle_is_told_once_within_20_iterations_and_its_pauses_are_not() -> None:
    for seed in range(20):
        _, told = play(chronicle(seed))
        assert len(told) == 1
        assert told[0].step == DROP_STEP and told[0].seen_step <= DROP_STEP + 20
        assert told[0].from_s == pytest.approx(105.2, rel=0.002) and told[0].to_s == pytest.approx(111, rel=0.004)
        assert told[0].confidence > 0.999 and not told[0].is_recovery


def test_pauses_alone_are_no_drop_whether_the_log_names_them_or_not() -> None:
    for seed in range(10):
        paces = chronicle(seed, 45_000, drops=False)
        named = [pace._replace(phase="evaluation") if pace.seconds > 140 else pace for pace in paces]
        assert play(paces)[1] == play(named)[1] == []


def test_an_evaluation_of_many_logged_steps_is_left_out_where_the_log_names_it() -> None:
    paces = [StepTime(n, 3.0 if 200 <= n < 240 else 1.0, "evaluation" if 200 <= n < 240 else "") for n in range(400)]
    assert play(paces)[1] == []
    assert len(play([pace._replace(phase="") for pace in paces])[1]) == 2   # else it is a drop, and a recovery


@each(("every", "lasts"), [(500, 20), (200, 30), (100, 50)])
def test_a_phase_that_no_log_names_is_told_once_and_not_each_time_it_comes(every: int, lasts: int) -> None:
    rng = random.Random(every)
    _, told = play(StepTime(step, rng.gauss(10, 0.1) * (1.2 if step % every >= every - lasts else 1.0))
                   for step in range(4000))
    assert [change.is_recovery for change in told] in ([False, True], [])


def test_a_drop_after_one_that_was_mended_is_told_as_soon_as_the_first() -> None:
    rng = random.Random(5)
    _, told = play(StepTime(step, rng.gauss(10, 0.03) * (1.06 if 400 <= step < 800 or step >= 1200 else 1.0))
                   for step in range(1300))
    assert [change.is_recovery for change in told] == [False, True, False] and told[2].seen_step < 1220


def test_a_recovery_is_told_once_and_with_the_step_at_which_it_began() -> None:
    rng = random.Random(5)
    speeds = [1.0] * 300 + [1.06] * 300 + [1.0] * 300
    _, told = play(StepTime(n, s * (1 + rng.gauss(0, 0.003))) for n, s in enumerate(speeds))
    assert [(change.step, change.is_recovery) for change in told] == [(300, False), (600, True)]
    assert told[1].to_s == pytest.approx(1.0, rel=0.005)


def test_a_second_drop_on_top_of_the_first_is_told_too() -> None:
    speeds = [1.0] * 100 + [1.06] * 100 + [1.13] * 100
    told = play(StepTime(n, s) for n, s in enumerate(speeds))[1]
    assert [(change.step, change.is_recovery) for change in told] == [(100, False), (200, False)]


def test_after_a_speed_up_the_faster_pace_is_the_level() -> None:
    speeds = [1.0] * 100 + [0.8] * 100 + [0.86] * 100
    told = play(StepTime(n, s) for n, s in enumerate(speeds))[1]
    assert [(change.step, round(change.from_s, 3)) for change in told] == [(200, 0.8)]


def test_a_drop_smaller_than_the_tolerance_is_not_told() -> None:
    rng = random.Random(3)
    assert play(StepTime(n, (1.0 if n < 300 else 1.035) * (1 + rng.gauss(0, 0.005))) for n in range(3000))[1] == []


def test_a_drop_that_creeps_is_told_though_the_level_follows_a_little() -> None:
    rng = random.Random(4)
    told = play(StepTime(n, (1 + 0.10 * min(600, max(0, n - 200)) / 600) * (1 + rng.gauss(0, 0.003)))
                for n in range(1200))[1]
    assert len(told) == 1 and 500 < told[0].seen_step < 850
    assert 1.0 < told[0].from_s < 1.03 and told[0].to_s / told[0].from_s == pytest.approx(1.05, abs=0.01)


def test_a_drop_that_comes_with_a_restart_is_told_and_its_slow_first_steps_are_not() -> None:
    first = [StepTime(n, 1.0) for n in range(200)]
    again = [StepTime(150 + n, 5.0 if n < SETTLE else 1.0) for n in range(200)]
    slower = [pace._replace(seconds=pace.seconds * 1.08) for pace in again]
    assert play(first + again)[1] == []
    told = play(first + slower)[1]
    assert [(change.step, change.is_recovery) for change in told] == [(150 + SETTLE, False)]


def test_values_on_both_sides_of_a_restart_are_never_added_up() -> None:
    watch, _ = play(StepTime(n, 1.0 if n < 100 else 1.2) for n in range(100 + LASTING - 1))
    assert watch.slower.score > 0 and restart(watch).slower.score == 0
    assert play([StepTime(n, 1.2) for n in range(SETTLE + LASTING - 1)], watch)[1] == []


def test_a_step_that_many_ranks_print_counts_once() -> None:
    paces = [StepTime(n, 1.0) for n in range(100)] + [StepTime(100, 1.5)] * 50
    assert play(paces)[1] == []


@given(st.floats(1e-300, 1e300), st.integers(0, 200))
def test_a_constant_pace_reports_nothing(seconds: float, more: int) -> None:
    watch, told = play(StepTime(n, seconds) for n in range(LEARN + SETTLE + more))
    assert told == [] and watch.noise == FLOOR


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([1e-6, 1e-3, 1 / 60, 1000.0, 1e6]), st.floats(1.0, 1.3))
def test_the_unit_changes_nothing(seed: int, unit: float, drop: float) -> None:
    rng = random.Random(seed)
    seconds = [(1 if n < 150 else drop) * (1 + rng.gauss(0, 0.01)) for n in range(300)]
    steps = [[(change.step, change.seen_step) for change in play(StepTime(n, s * by) for n, s in enumerate(seconds))[1]]
             for by in (1.0, unit)]
    assert steps[0] == steps[1]


NONSENSE = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, -1e300])


@settings(deadline=None, max_examples=25)
@given(st.dictionaries(st.integers(0, 299), NONSENSE, max_size=60))
def test_values_that_are_no_durations_are_left_out(nonsense: dict[int, float]) -> None:
    clean = [StepTime(2 * n, 1.0 if n < 150 else 1.1) for n in range(300)]
    dirty = [one for pace in clean for one in (
        *([StepTime(pace.step + 1, nonsense[pace.step // 2])] if pace.step // 2 in nonsense else []), pace)]
    assert play(dirty) == play(clean)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(-5, 10 ** 12), st.floats(allow_nan=True), st.sampled_from(["", "data"])),
                max_size=150), st.floats(1e-6, 10))
def test_no_series_breaks_it_and_its_memory_is_bounded(series: list[tuple[int, float, str]], tolerance: float) -> None:
    watch, _ = play((StepTime(*values) for values in series), PaceWatch(tolerance))
    assert len(watch.recent) <= KEPT
    assert 0 <= watch.slower.score <= ALARM and 0 <= watch.faster.score <= ALARM


def test_its_memory_stays_bounded_over_a_long_run() -> None:
    watch, _ = play(step_times(random.Random(1), 3 * KEPT, 0.005))
    assert len(watch.recent) == KEPT and max(watch.slower.count, watch.faster.count) <= KEPT


def test_noise_that_lasts_counts_for_more_than_noise_that_does_not() -> None:
    quiet = [math.log(pace.seconds) for pace in step_times(random.Random(2), KEPT - DELAY, 0.01)]
    lasting = [math.log(pace.seconds) for pace in step_times(random.Random(2), KEPT - DELAY, 0.01, rho=0.9)]
    assert noise_of(quiet) == pytest.approx(0.01, rel=0.4)
    assert noise_of(lasting) > 2.5 * noise_of(quiet)   # in the long run by sqrt(1.9 / 0.1) = 4.4


def test_outliers_do_not_count_as_noise() -> None:
    rng = random.Random(6)
    values = [rng.gauss(0, 0.01) + (2.0 if n % 10 == 0 else 0.0) for n in range(480)]
    assert noise_of(values) < 0.025


def test_a_healthy_run_reports_nothing_in_long_runs_with_noise_that_lasts() -> None:
    told = [change for seed in range(4) for noise, rho in ((0.005, 0.0), (0.01, 0.9)) for change in play(
        step_times(random.Random(f"{seed} {noise}"), 2500, noise, rho=rho))[1]]
    assert told == []   # `python -m benchmarks.slow drops` has the long form


def test_a_sum_is_never_negative_and_falls_back_to_nothing() -> None:
    once = Excursion().add(1e9, 100)
    assert once.count == 1 and once.score == pytest.approx(ALARM / LASTING)
    assert once.add(-1e9, 100) == Excursion()
