"""What restarts have cost, how fast a run goes, and when it will be done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.model import Event
from safelaunch.status.costs import Costs, Track, count, follow, remaining_s
from tests.tables import each

Line = tuple[float, str, dict[str, object]]


def start(t: float, number: int, step: int | None = None, job: str = "12") -> Line:
    return (t, "attempt_started", {"attempt": number, "job": job, "resume_step": step})


def progress(t: float, number: int, step: int) -> Line:
    return (t, "progress", {"attempt": number, "step": step, "counter": "step N"})


def end(t: float, number: int, how: str = "failed") -> Line:
    return (t, "attempt_ended", {"attempt": number, "how": how})


def events(*lines: Line) -> list[Event]:
    return [Event(t, 1, number, "n0", kind, data) for number, (t, kind, data) in enumerate(lines)]


def costs(*lines: Line, now: float, step: int | None = None, ended_t: float | None = None,
          jobs: dict[str, float] | None = None) -> Costs:
    return count(follow(events(*lines), now, step), jobs or {"12": 0.0}, now, ended_t)


# A step a second: the first attempt makes 600, of which the checkpoint at 540 keeps all but 60, and dies at 700.
FIRST = (start(0, 1), progress(100, 1, 60), progress(160, 1, 120), progress(640, 1, 600), end(645, 1))
SECOND = (*FIRST, start(650, 2, 540), progress(700, 2, 550))


def test_a_restart_costs_the_steps_made_again_and_the_time_until_it_is_as_far_as_before() -> None:
    (restart,) = costs(*SECOND, progress(760, 2, 610), now=800.0).restarts
    assert (restart.attempt, restart.from_step, restart.to_step, restart.steps) == (2, 600, 540, 60)
    assert restart.seconds == pytest.approx(750 - 640) and restart.is_over   # step 600 again at 750


def test_a_restart_goes_on_costing_until_it_is_as_far_as_before() -> None:
    (restart,) = costs(*SECOND, now=720.0).restarts
    assert restart.seconds == pytest.approx(720 - 640) and not restart.is_over


def test_the_log_knows_of_a_step_before_the_journal_does() -> None:
    (restart,) = costs(*SECOND, now=720.0, step=605).restarts
    assert restart.is_over and 700 - 640 < restart.seconds < 720 - 640


def test_after_a_checkpoint_without_a_lost_step_only_the_time_to_its_first_step_is_lost() -> None:
    (restart,) = costs(*FIRST, start(650, 2, 600), progress(720, 2, 660), progress(780, 2, 720), now=800.0).restarts
    assert restart.seconds == pytest.approx(660 - 640)
    assert (restart.steps, restart.is_over) == (0, True)


def test_a_restart_from_the_start_loses_all_steps() -> None:
    (restart,) = costs(*FIRST, start(650, 2), progress(700, 2, 5), now=710.0).restarts
    assert (restart.steps, restart.to_step, restart.is_over) == (600, 0, False)


def test_an_attempt_that_finds_its_own_begin_and_makes_no_step_loses_none() -> None:
    (done,) = costs(*FIRST, start(650, 2), end(652, 2, "completed"), now=700.0, ended_t=652.0).restarts
    assert (done.steps, done.is_over) == (0, True)   # killed behind its last step
    both = costs(*FIRST, start(650, 2), end(652, 2), start(660, 3),
                 (700, "progress", {"attempt": 3, "step": 600, "first": 541}), now=800.0)
    assert [restart.steps for restart in both.restarts] == [0, 60]


def test_two_restarts_in_a_row_lose_no_second_twice() -> None:
    both = costs(*SECOND, end(710, 2), start(720, 3, 540), progress(730, 3, 541), progress(790, 3, 601), now=900.0)
    assert both.seconds == pytest.approx(789 - 640)       # from step 600 to step 600 again
    assert [restart.seconds for restart in both.restarts] == [pytest.approx(60), pytest.approx(89)]
    assert both.steps == 60 + 10


def test_a_hang_before_the_end_is_lost_time_although_the_journal_hears_of_the_last_step_only_at_the_end() -> None:
    hung = (start(0, 1), progress(60, 1, 60), progress(120, 1, 120), progress(1900, 1, 130), end(1901, 1),
            start(1910, 2, 130), progress(1920, 2, 140), progress(1980, 2, 200))
    (restart,) = costs(*hung, now=2000.0).restarts
    assert restart.seconds == pytest.approx(1910 - 130)


def test_time_in_the_queue_is_told_apart() -> None:
    handed = costs(*FIRST, start(1650, 2, 540, job="13"), progress(1700, 2, 550), progress(1760, 2, 610),
                   now=1800.0, jobs={"12": 0.0, "13": 1640.0})
    assert handed.restarts[0].queued_s == pytest.approx(1640 - 645)


def test_the_overhead_is_the_share_of_the_time_that_restarts_took() -> None:
    assert costs(*SECOND, progress(760, 2, 610), now=1000.0).overhead == pytest.approx(110 / 1000)
    assert costs(*SECOND, progress(760, 2, 610), now=9e9, ended_t=1000.0).overhead == pytest.approx(110 / 1000)
    assert costs(*FIRST, now=1000.0).overhead == pytest.approx(360 / 1000), "down since step 600"
    assert costs(*FIRST[:-1], now=1000.0).overhead == 0.0
    assert costs(now=5.0).overhead is None


@each(("lines", "pace_s"), [
    ([start(0, 1), progress(60, 1, 60), progress(120, 1, 90), progress(180, 1, 120)], 2.0),
    ([start(0, 1), progress(60, 1, 60)], None),
    ([start(0, 1), progress(60, 1, 60), progress(61, 1, 90)], None),
    ([start(0, 1), progress(60, 1, 60), progress(120, 1, 50)], None),
], ids=["median of its minutes", "one step only", "too close", "steps that go back"])
def test_the_pace_is_that_of_the_clock(lines: list[Line], pace_s: float | None) -> None:
    assert follow(events(*lines), 200.0)[0].pace_s == pace_s


@each(("step", "total", "pace_s", "left_s"), [
    (90, 100, 2.0, 20.0), (100, 100, 2.0, 0.0), (101, 100, 2.0, None), (90, None, 2.0, None), (None, 100, 2.0, None),
    (90, 100, None, None),
])
def test_what_is_left(step: int | None, total: int | None, pace_s: float | None, left_s: float | None) -> None:
    assert remaining_s(step, total, pace_s) == left_s


odd = st.one_of(st.none(), st.text(max_size=3), st.integers(-5, 2000), st.floats())
lines = st.tuples(st.floats(0, 1e6), st.sampled_from(["attempt_started", "progress", "attempt_ended", "other"]),
                  st.fixed_dictionaries({"attempt": st.integers(1, 4) | odd}, optional={
                      "step": odd, "resume_step": odd, "job": odd, "how": odd}))


@given(st.lists(lines, max_size=12), st.floats(0, 2e6))
def test_any_journal_has_costs_that_are_no_gain(found: list[Line], now: float) -> None:
    told = costs(*found, now=now)
    assert told.seconds >= 0 and told.steps >= 0 and all(one.queued_s >= 0 for one in told.restarts)
    assert told.overhead is None or 0 <= told.overhead <= 1


@each(("paces", "trend"), [
    ([2.0] * 14, None), ([2.0] * 30, 0.0), ([2.0] * 25 + [2.5] * 5, 0.25), ([2.0] * 25 + [1.0] * 5, -0.5),
    ([2.0] * 28 + [9.0] * 2, 0.0),
], ids=["too few", "steady", "slower", "faster", "an evaluation"])
def test_the_trend_compares_the_last_minutes_with_those_before(paces: list[float], trend: float | None) -> None:
    points, t = [(0.0, 0)], 0.0
    for number, pace_s in enumerate(paces[1:], 1):
        t += 30 * pace_s
        points.append((t, 30 * number))
    assert Track(1, "12", 0.0, 0, tuple(points)).trend == trend
