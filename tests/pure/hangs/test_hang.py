"""How long a training may be silent: learned by phase, first steps apart, evaluations and checkpoints told apart."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.hangs import hang
from safelaunch.hangs.hang import NOTICE_S, UNSEEN_S, Learned, Rhythm
from safelaunch.trainlog.lines import Talk
from tests.tables import each

FIRST_S = 3600.0
Gap = tuple[float, str]


def train(gaps: Iterable[Gap], rhythm: Rhythm | None = None, now_s: float = 0.0) -> tuple[Rhythm, float, int]:
    """The rhythm after steps with these gaps (s, sign or ""), the time, and how often somebody would have looked."""
    rhythm = rhythm or hang.begin(now_s, FIRST_S, None)
    looks, step = 0, rhythm.step or 0
    for gap_s, sign in gaps:
        if sign:
            rhythm = hang.update(rhythm, now_s, Talk(None, (sign,)))
        looks += now_s + gap_s > hang.deadline_s(rhythm)
        now_s, step = now_s + gap_s, step + 1
        rhythm = hang.update(rhythm, now_s, Talk(step, (), str(step)))
    return rhythm, now_s, looks


def plain(count: int, step_s: float = 3.0) -> list[Gap]:
    return [(step_s, "")] * count


def silence_s(rhythm: Rhythm, now_s: float, sign: str = "") -> float:
    """How long the training may be silent from now on, if the log says `sign` first."""
    if sign:
        rhythm = hang.update(rhythm, now_s, Talk(None, (sign,)))
    return hang.deadline_s(rhythm) - now_s


@each("step_s", [0.2, 3.0, 14.0])
def test_a_hang_is_noticed_within_a_minute_where_steps_are_short(step_s: float) -> None:
    rhythm, now_s, _ = train(plain(50, step_s))
    assert silence_s(rhythm, now_s) + 5.0 <= 60, "the leader looks each 5 s"


def test_long_steps_get_a_third_more_than_the_longest() -> None:
    rhythm, now_s, _ = train([*plain(20, 100.0), (120.0, ""), *plain(5, 100.0)])
    assert silence_s(rhythm, now_s) == pytest.approx(1.3 * 120 - 3)


def test_steps_of_twenty_seconds_are_given_a_minute_too() -> None:
    rhythm, now_s, _ = train(plain(30, 20.0))
    assert silence_s(rhythm, now_s) == NOTICE_S


def test_the_first_step_is_never_judged_by_later_ones() -> None:
    rhythm, now_s, _ = train(plain(50))
    assert silence_s(hang.begin(now_s, FIRST_S, None, rhythm), now_s) == FIRST_S


def test_a_third_start_is_judged_by_the_two_before_it_unless_the_nodes_are_other_ones() -> None:
    rhythm = hang.begin(0.0, FIRST_S, None)
    rhythm, now_s, _ = train([(400.0, ""), *plain(10)], rhythm)
    rhythm = hang.begin(now_s, FIRST_S, None, rhythm)
    assert silence_s(rhythm, now_s) == FIRST_S, "one start is no rule"
    rhythm, now_s, _ = train([(400.0, ""), *plain(10)], rhythm, now_s)
    assert silence_s(hang.begin(now_s, FIRST_S, None, rhythm), now_s) == pytest.approx(1.3 * 400)
    assert silence_s(hang.begin(now_s, FIRST_S, None, rhythm, is_resized=True), now_s) == FIRST_S


def test_the_first_steps_get_patience_and_do_not_stretch_later_ones() -> None:
    rhythm, now_s, looks = train([(60.0, ""), (200.0, ""), (2.0, ""), (90.0, ""), (2.0, ""), (2.0, "")])
    assert looks == 0
    rhythm, now_s, _ = train(plain(5, 2.0), rhythm, now_s)
    assert silence_s(rhythm, now_s) == NOTICE_S


def test_a_later_attempt_remembers_what_its_forerunner_taught() -> None:
    rhythm, now_s, _ = train([*plain(20), *[(200.0, "checkpoint"), *plain(5)] * 3])
    again = hang.begin(now_s, FIRST_S, None, rhythm)
    again, now_s, looks = train([(600.0, ""), *plain(10)], again, now_s)
    assert looks == 0 and silence_s(again, now_s, "checkpoint") == pytest.approx(1.3 * 200 - 3)


def test_on_fewer_nodes_everything_may_take_longer_by_as_much_as_a_step_does() -> None:
    rhythm, now_s, _ = train([*plain(20), *[(200.0, "evaluation"), *plain(5)] * 3])
    again = hang.begin(now_s, FIRST_S, None, rhythm, is_resized=True)
    again, now_s, _ = train([(600.0, ""), *plain(20, 9.0)], again, now_s)
    assert silence_s(again, now_s, "evaluation") == pytest.approx(1.3 * 3 * 200 - 3)


def test_an_evaluation_of_seven_steps_that_the_log_names_is_healthy() -> None:
    assert train([*plain(30, 10.0), (70.0, "evaluation"), *plain(30, 10.0), (70.0, "evaluation")])[2] == 0


def test_a_checkpoint_of_forty_steps_is_healthy_once_it_was_seen() -> None:
    rhythm, now_s, _ = train([*plain(30, 5.0), (200.0, "checkpoint"), *plain(30, 5.0)])
    assert train([(200.0, "checkpoint"), *plain(5, 5.0)], rhythm, now_s)[2] == 0


def test_a_deadlock_in_an_evaluation_is_noticed_by_the_evaluations_own_length() -> None:
    rhythm, now_s, _ = train([*plain(30, 10.0), *[(70.0, "evaluation"), *plain(30, 10.0)] * 3])
    assert silence_s(rhythm, now_s, "evaluation") == pytest.approx(1.3 * 70 - 3)


def test_an_evaluation_and_the_checkpoint_behind_it_are_judged_each_by_its_own() -> None:
    history = [*plain(30), *[(70.0, "evaluation"), *plain(10), (200.0, "checkpoint"), *plain(10)] * 3]
    rhythm, now_s, _ = train(history)
    rhythm = hang.update(rhythm, now_s, Talk(None, ("evaluation",)))
    rhythm = hang.update(rhythm, now_s + 75.0, Talk(None, ("evaluation end", "checkpoint")))
    assert hang.deadline_s(rhythm) - now_s == pytest.approx(75 + 1.3 * 200 - 3)


def test_what_follows_the_last_word_of_a_checkpoint_has_a_patience_of_its_own() -> None:
    rhythm, now_s, _ = train([*plain(30), (200.0, "checkpoint"), *plain(3)])
    assert silence_s(rhythm, now_s, "checkpoint end") == UNSEEN_S - 3, "an optimizer may be written behind the weights"


def test_many_ranks_that_say_the_same_begin_it_once() -> None:
    rhythm, now_s, _ = train([*plain(30), *[(200.0, "checkpoint"), *plain(3)] * 3])
    rhythm = hang.update(rhythm, now_s, Talk(None, ("checkpoint",)))
    for second in range(20):
        rhythm = hang.update(rhythm, now_s + second, Talk(None, ("checkpoint",)))
    assert hang.deadline_s(rhythm) - now_s == pytest.approx(1.3 * 200 - 3)


def test_a_rank_that_lags_behind_makes_no_progress_for_the_others() -> None:
    rhythm, now_s, _ = train(plain(30))
    deadline_s = hang.deadline_s(rhythm)
    assert hang.deadline_s(hang.update(rhythm, now_s + 10.0, Talk(29, (), "29"))) == deadline_s
    assert hang.deadline_s(hang.update(rhythm, now_s + 10.0, Talk(1, (), "1"))) > deadline_s, "a bar's next epoch"


def test_an_epochs_fraction_is_progress_where_no_step_is_named() -> None:
    rhythm = hang.begin(0.0, FIRST_S, None)
    for number in range(20):
        rhythm = hang.update(rhythm, 10.0 * number, Talk(None, (), f"epoch 0.{number:02}"))
    assert hang.deadline_s(rhythm) == 190 + NOTICE_S


def test_a_silent_evaluation_at_regular_steps_is_learned_without_stretching_plain_steps() -> None:
    history = [gap for _ in range(4) for gap in (*plain(49, 2.0), (90.0, ""))]
    rhythm, now_s, _ = train([*history, *plain(10, 2.0)])
    assert silence_s(rhythm, now_s) == NOTICE_S, "ten steps behind an evaluation"
    rhythm, now_s, looks = train([*plain(39, 2.0), (90.0, ""), *plain(3, 2.0)], rhythm, now_s)
    assert looks == 0, "at its place the evaluation is expected"


def test_stalls_at_any_steps_stretch_nothing() -> None:
    rhythm, now_s, looks = train([gap for count in (31, 52, 80, 17, 44) for gap in (*plain(count), (120.0, ""))])
    assert looks == 5, "each is looked at"
    assert silence_s(train(plain(3), rhythm, now_s)[0], now_s + 9.0) == NOTICE_S


def test_what_a_look_shows_is_what_the_silence_is_learned_as() -> None:
    rhythm, now_s, _ = train(plain(30))
    rhythm = hang.postpone_check(rhythm, now_s + 56.0, "evaluation")
    assert hang.phase_of(rhythm) == "evaluation" and hang.deadline_s(rhythm) - now_s == UNSEEN_S - 3
    rhythm, now_s, looks = train([(300.0, "")], rhythm, now_s)
    assert looks == 0 and rhythm.learned["evaluation"].longest_s == 300


def test_what_a_look_shows_is_measured_by_its_own_kind_however_often_somebody_has_looked() -> None:
    rhythm, now_s, _ = train(plain(30))
    for second in (60.0, 100.0, 150.0, 250.0, 400.0):
        rhythm = hang.postpone_check(rhythm, now_s + second)
    assert hang.deadline_s(hang.postpone_check(rhythm, now_s + 500.0, "evaluation")) - now_s == UNSEEN_S - 3


def test_somebody_looks_again_within_an_hour() -> None:
    rhythm = train(plain(30))[0]
    for _ in range(40):
        deadline_s = hang.deadline_s(rhythm)
        rhythm = hang.postpone_check(rhythm, deadline_s)
        assert deadline_s < hang.deadline_s(rhythm) <= deadline_s + hang.LOOK_MOST_S + 1.0


def test_the_users_own_word_counts_for_every_later_step() -> None:
    rhythm = hang.begin(0.0, FIRST_S, 120.0)
    rhythm, now_s, _ = train(plain(10), rhythm)
    assert silence_s(rhythm, now_s, "checkpoint") == 120


def test_a_log_without_steps_is_judged_by_its_longest_silence() -> None:
    rhythm, now_s = hang.begin(0.0, 600.0, None), 0.0
    for quiet_s in (10.0, 1200.0, 10.0):
        now_s += quiet_s
        rhythm = hang.update(rhythm, now_s, Talk())
    assert hang.deadline_s(rhythm) - now_s == 3 * 1200


def test_each_look_that_finds_it_alive_makes_the_next_one_later() -> None:
    rhythm, now_s, _ = train(plain(50))
    later = hang.postpone_check(rhythm, now_s + 56.0)
    assert hang.deadline_s(later) - now_s == pytest.approx(1.5 * NOTICE_S)
    assert hang.deadline_s(hang.postpone_check(later, now_s + 500.0)) > now_s + 500
    assert silence_s(train(plain(1), later, now_s)[0], now_s + 3.0) == pytest.approx(NOTICE_S), "a step begins anew"


def test_a_checkpoint_that_has_appeared_is_progress_of_its_own_time() -> None:
    rhythm, now_s, _ = train(plain(50))
    assert hang.deadline_s(hang.alive(rhythm, now_s + 30.0)) == now_s + 30 + NOTICE_S
    assert hang.alive(rhythm, now_s - 30.0) == rhythm, "an old one says nothing"


def test_a_leader_that_was_stopped_itself_blames_nobody() -> None:
    rhythm, now_s, _ = train(plain(50))
    assert hang.deadline_s(hang.forgive(rhythm, 600.0)) - now_s == NOTICE_S + 600


def test_the_longest_duration_is_forgotten_in_time() -> None:
    learned = Learned().add(500.0)
    for _ in range(hang.WINDOW):
        learned = learned.add(2.0)
    assert learned.longest_s == 500, "for at least a window"
    for _ in range(hang.WINDOW):
        learned = learned.add(2.0)
    assert learned.longest_s == 2


@given(st.integers(0, 2**32), st.floats(0.05, 120.0))
@settings(max_examples=60, deadline=None)
def test_ordinary_jitter_wakes_nobody(seed: int, step_s: float) -> None:
    draw = random.Random(seed)
    looks = train([(step_s * draw.uniform(0.9, 1.15), "") for _ in range(300)])[2]
    assert looks == 0


# --- a rank that has raised an exception and does not end -----------------------------------------------------------

RAISED = Talk(has_raised=True)


def test_after_an_exception_of_a_rank_a_check_comes_soon_whatever_the_phase() -> None:
    rhythm = hang.update(hang.begin(0.0, 3600.0, None), 100.0, RAISED)
    assert hang.deadline_s(rhythm) == 100.0 + hang.NOTICE_S
    rhythm = hang.update(rhythm, 101.0, Talk())   # the others still write
    rhythm = hang.update(rhythm, 102.0, RAISED)
    assert hang.deadline_s(rhythm) == 100.0 + hang.NOTICE_S
    assert hang.hold_s(rhythm, 150.0) == hang.HOLD_S - 50.0, "counted from the exception, not from the start"
    looked = hang.postpone_check(rhythm, 156.0)
    assert hang.deadline_s(hang.update(looked, 157.0, RAISED)) > 200.0, "once"


def test_a_step_after_an_exception_shows_that_the_training_goes_on() -> None:
    rhythm = hang.update(hang.begin(0.0, 3600.0, None), 100.0, RAISED)
    stepped = hang.update(rhythm, 110.0, Talk(1, (), "1"))
    assert hang.deadline_s(stepped) > 110.0 + hang.NOTICE_S
    assert stepped.raised_s == math.inf
    told = hang.update(stepped, 111.0, Talk(None, ("evaluation",)))
    assert hang.deadline_s(hang.update(told, 112.0, RAISED)) == 112.0 + hang.NOTICE_S
    assert hang.alive(rhythm, 120.0).raised_s == math.inf


def test_a_read_that_names_many_short_steps_ends_the_warm_up() -> None:
    """Seen: a hang at step 60 of 0.1 s, 6 s after the first one, was checked after 15 min: it was the second read."""
    first = hang.update(hang.begin(0.0, 3600.0, None), 30.0, Talk(1, (), "1"))
    assert hang.deadline_s(first) > 900.0, "it may compile"
    assert hang.deadline_s(hang.update(first, 35.0, Talk(2, (), "2"))) > 900.0
    assert hang.deadline_s(hang.update(first, 35.0, Talk(51, (), "51", named=50))) == 35.0 + hang.NOTICE_S
