"""Seconds per step are read from a log as it grows, over attempts and supervisors."""

from __future__ import annotations

import math
import random

import pytest

from safelaunch.base.model import Event
from safelaunch.nodehealth.slow.changepoint import PaceChange, PaceWatch
from safelaunch.nodehealth.slow.pace import (
    BY_CLOCK,
    BY_LOG,
    WINDOW_S,
    LogPace,
    go_on,
    level_of,
    most_lines,
    of_attempt,
    take_in,
)
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import Slower, State
from safelaunch.run.steppace import StepPace, to_event
from safelaunch.trainlog.steplines import MOST_LINES, Patterns, StepLine, step_lines
from tests.tables import each

KNOWN = StepPace(1, 500, 105.2, 0.004, BY_LOG)


def line(step: int, seconds: float | None = None, phase: str = "") -> StepLine:
    return StepLine(step, seconds, None, None, phase, "")


def play(pace: LogPace, first: int, seconds: float, count: int, seed: int = 1) -> tuple[LogPace, list[PaceChange]]:
    """So many steps of that length, by the log's own figure, one a look."""
    rng = random.Random(seed)
    told: list[PaceChange] = []
    for step in range(first, first + count):
        pace, changes = take_in(pace, [line(step, seconds * (1 + rng.gauss(0, 0.003)))], "", 0.0)
        told += changes
    return pace, told


def test_a_line_gives_its_step_its_time_its_loss_and_what_was_done_before_it() -> None:
    text = (b" iteration   41/ 900 | elapsed time per iteration (ms): 12000.0 | lm loss: 2.5E+00 |\n"
            b"saving checkpoint at iteration      41 to /c\nsuccessfully saved checkpoint\n"
            b" iteration   42/ 900 | elapsed time per iteration (ms): 50000.0 | lm loss: nan |\n(evaluating ...)\n"
            b"evaluating the model\n")
    lines, phase = step_lines(text, Patterns())
    timed = [(one.step, one.seconds, one.loss) for one in lines if one.seconds is not None]
    assert timed[0] == (41, 12.0, 2.5) and timed[1][:2] == (42, 50.0) and math.isnan(timed[1][2] or 0.0)
    assert "checkpoint" in lines[-1].phase + lines[1].phase and phase == "evaluation"


def test_the_users_own_patterns_are_used() -> None:
    lines, _ = step_lines(b"S7 took 3.5 cost 1.25\n", Patterns(r"^S(\d+)", r"took ([\d.]+)", r"cost ([\d.]+)"))
    assert [(one.step, one.seconds, one.loss) for one in lines] == [(7, 3.5, 1.25)]


def test_no_more_lines_of_one_piece_are_read_than_that() -> None:
    text = b"".join(b"step %d time per iteration\n" % number for number in range(5000))
    lines, _ = step_lines(text, Patterns())
    assert len(lines) == MOST_LINES and lines[-1].step == 4999


def test_a_drop_is_told_once_and_its_end_once() -> None:
    pace, told = play(of_attempt(go_on(None, 0.05), 1), 0, 10.0, 100)
    assert not told
    pace, told = play(pace, 100, 10.6, 300)
    assert [one.is_recovery for one in told] == [False] and 100 <= told[0].step <= 102
    pace, told = play(pace, 400, 10.0, 300)
    assert [one.is_recovery for one in told] == [True]


def test_a_drop_that_a_restart_has_brought_is_told_though_its_steps_begin_lower() -> None:
    pace, _ = play(of_attempt(go_on(None, 0.05), 1), 0, 10.0, 100)
    pace, told = play(of_attempt(pace, 2), 50, 10.6, 60)
    assert len(told) == 1 and told[0].from_s == pytest.approx(10.0, rel=0.01)


def test_steps_that_ranks_repeat_count_once() -> None:
    pace = of_attempt(go_on(None, 0.05), 1)
    once, _ = take_in(pace, [line(10, 5.0), line(11, 5.0)], "", 0.0)
    again, _ = take_in(pace, [line(10, 5.0), line(11, 5.0), line(10, 5.0), line(11, 5.0), line(9, 5.0)], "", 0.0)
    assert once == again


def test_a_value_behind_a_phase_is_left_out_even_where_the_phase_was_named_in_an_earlier_look() -> None:
    pace, _ = play(of_attempt(go_on(None, 0.05), 1), 0, 10.0, 100)
    told: list[PaceChange] = []
    for step in range(100, 200):
        pace, _ = take_in(pace, [], "checkpoint", 0.0)
        pace, changes = take_in(pace, [line(step, 30.0)], "", 0.0)
        told += changes
    assert not told


def clocked(
    pace: LogPace, seconds: float, first: int, start_s: float, phase: str = ""
) -> tuple[LogPace, list[PaceChange]]:
    """200 steps of that length, whose lines name no time; each is seen up to a second late."""
    rng = random.Random(3)
    told: list[PaceChange] = []
    for number in range(200):
        seen_s = start_s + number * seconds + rng.random()
        pace, changes = take_in(pace, [line(first + number)], phase, seen_s)
        told += changes
    return pace, told


def test_without_figures_the_clock_tells_a_drop() -> None:
    pace, told = clocked(of_attempt(go_on(None, 0.05), 1), 105.0, 0, 0.0)
    assert pace.source == BY_CLOCK and not told
    pace, told = clocked(pace, 120.0, 200, 200 * 105.0)
    assert len(told) == 1 and told[0].to_s == pytest.approx(120.0, rel=0.02)


def test_the_clock_counts_no_time_in_which_the_log_names_a_phase() -> None:
    pace, _ = clocked(of_attempt(go_on(None, 0.05), 1), 105.0, 0, 0.0)
    _, told = clocked(pace, 300.0, 200, 200 * 105.0, "evaluation")
    assert not told


def test_fast_steps_make_one_value_a_window() -> None:
    pace = of_attempt(go_on(None, 0.05), 1)
    for second in range(int(10 * WINDOW_S) + 5):
        pace, _ = take_in(pace, [line(second * 8)], "", float(second))
    assert pace.watch.settle == 0 and len(pace.watch.recent) == 0   # the ten values after a start


def test_figures_that_come_after_the_clock_begin_a_level_of_their_own() -> None:
    pace, _ = clocked(of_attempt(go_on(None, 0.05), 1), 105.0, 0, 0.0)
    pace, told = play(pace, 200, 60.0, 100)
    assert pace.source == BY_LOG and not told
    assert math.exp(pace.watch.level or 0.0) == pytest.approx(60.0, rel=0.01)


def state_after(*events: tuple[str, dict[str, object]]) -> State:
    return fold([Event(100.0 + number, 1, number, "n0", name, data) for number, (name, data) in enumerate(events)])


def test_a_supervisor_that_takes_over_goes_on_with_the_level_and_tells_no_drop_twice() -> None:
    dropped = {**to_event(StepPace(1, 509, 111.0, 0.004, BY_LOG, 105.2)), "since_step": 501, "from_s": 105.2,
               "confidence": 0.9999}
    state = state_after(("slower", dropped))
    assert state.slower == Slower(1, 501, 100.0, 105.2, 111.0, 0.9999)
    pace = of_attempt(go_on(state.pace, 0.05), 1)
    pace, _ = take_in(pace, [line(step, 105.2) for step in range(480, 501)], "", 0.0)   # read by the one before
    pace, told = play(pace, 510, 111.0, 200)
    assert not told
    pace, told = play(pace, 710, 105.2, 40)
    assert [one.is_recovery for one in told] == [True]


def test_a_supervisor_that_starts_after_a_drop_of_its_new_job_tells_it_by_the_journals_level() -> None:
    state = state_after(("step_time", to_event(KNOWN)))
    assert state.pace == KNOWN
    _, told = play(of_attempt(go_on(state.pace, 0.05), 2), 400, 111.0, 40)
    assert len(told) == 1 and told[0].from_s == pytest.approx(105.2, rel=0.005)


def test_the_end_of_a_drop_and_a_second_drop_are_folded_from_the_first_level_on() -> None:
    first = {**to_event(StepPace(1, 9, 11.0, 0.004, BY_LOG, 10.0)), "since_step": 1, "from_s": 10.0, "confidence": 1.0}
    second = {**to_event(StepPace(1, 99, 12.0, 0.004, BY_LOG, 10.0)), "since_step": 91, "from_s": 11.0,
              "confidence": 1.0}
    over = {**to_event(StepPace(1, 199, 10.0, 0.004, BY_LOG)), "since_step": 191, "from_s": 12.0, "confidence": 1.0}
    state = state_after(("slower", first), ("slower", second))
    assert state.slower is not None and (state.slower.from_s, state.slower.to_s) == (10.0, 12.0)
    state = state_after(("slower", first), ("slower", second), ("slower_over", over))
    assert state.slower is None and state.pace is not None and state.pace.level_s == 10.0


@each("level", [0, -1, "x", None, float("inf"), float("nan")])
def test_a_level_that_is_none_is_no_level(level: object) -> None:
    assert state_after(("step_time", {**to_event(KNOWN), "level_s": level})).pace is None


def test_the_level_that_is_passed_on_is_the_one_that_was_passed_on() -> None:
    assert level_of(of_attempt(go_on(KNOWN, 0.05), 1)) == KNOWN
    assert level_of(go_on(None, 0.05)) is None


def test_a_node_that_is_slow_early_in_a_run_of_quick_steps_is_told_within_two_looks() -> None:
    """Steps of 0.2 s, and a look each 5 s; from step 60 on a step takes 0.5 s."""
    rng, known, told = random.Random(3), LogPace(PaceWatch(0.05)), []
    piece, t = list[str](), 0.0
    for step in range(1, 120):
        took = (0.2 if step < 60 else 0.5) * (1 + abs(rng.gauss(0, 0.01)))
        piece.append(f"step {step}/400 | loss 2.5 | {took * 1000:.0f} ms/step\n")
        if (t := t + took) >= 5.0:
            lines, phase = step_lines("".join(piece).encode(), Patterns(), most=most_lines(known))
            known, changes = take_in(known, lines, phase, 0.0)
            told += [(step, change) for change in changes]
            piece, t = [], 0.0
    (seen, change), = told
    assert seen < 90 and 60 <= change.step < 70 and abs(change.from_s - 0.2) < 0.01, told
