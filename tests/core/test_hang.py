"""How long a training may be silent: learned by phase, first steps apart, evaluations and checkpoints told apart."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.core import hang
from safelaunch.core.hang import Rhythm
from safelaunch.core.progress import Talk, listen

FIRST_S = 3600.0


def train(
    gaps: Iterable[tuple[float, str]], rhythm: Rhythm | None = None, now_s: float = 0.0,
) -> tuple[Rhythm, float, int]:
    """The rhythm after steps with these gaps (s, hint or ""), the time, and how often somebody would have looked."""
    rhythm = rhythm or hang.begin(now_s, FIRST_S, None)
    looks, step = 0, rhythm.step or 0
    for gap_s, hint in gaps:
        if hint:
            rhythm = hang.hear(rhythm, now_s + min(0.1, gap_s / 2), Talk(None, frozenset({hint})))
        looks += now_s + gap_s > hang.deadline_s(rhythm)
        now_s, step = now_s + gap_s, step + 1
        rhythm = hang.hear(rhythm, now_s, Talk(step))
    return rhythm, now_s, looks


def plain(count: int, step_s: float = 3.0) -> list[tuple[float, str]]:
    return [(step_s, "")] * count


@pytest.mark.parametrize("step_s", [0.2, 3.0, 14.0])
def test_a_hang_is_noticed_within_a_minute_where_steps_are_short(step_s: float) -> None:
    rhythm, now_s, _ = train(plain(50, step_s))
    assert hang.deadline_s(rhythm) - now_s <= 60


def test_long_steps_get_a_third_more_than_the_longest() -> None:
    rhythm, now_s, _ = train([(100.0, ""), *plain(20, 100.0), (120.0, "")])
    assert hang.deadline_s(rhythm) - now_s == pytest.approx(1.3 * 120)


def test_the_first_step_is_never_judged_by_later_ones() -> None:
    rhythm, now_s, _ = train(plain(50))
    again = hang.begin(now_s, FIRST_S, None, rhythm)
    assert hang.deadline_s(again) - now_s == FIRST_S


def test_a_later_attempt_remembers_what_its_forerunner_taught() -> None:
    rhythm, now_s, _ = train([*plain(20), (200.0, "checkpoint"), *plain(5)])
    again = hang.begin(now_s, FIRST_S, None, rhythm)
    again, now_s, looks = train([(600.0, ""), *plain(10), (200.0, "checkpoint")], again, now_s)
    assert looks == 0 and again.gaps["checkpoint"] == (200.0, 200.0)


def test_an_evaluation_of_seven_steps_that_the_log_names_is_healthy() -> None:
    assert train([*plain(30, 10.0), (70.0, "evaluation"), *plain(30, 10.0), (70.0, "evaluation")])[2] == 0


def test_a_checkpoint_of_forty_steps_is_healthy_once_it_was_seen() -> None:
    rhythm, now_s, _ = train([*plain(30, 5.0), (200.0, "checkpoint"), *plain(30, 5.0)])
    _, _, looks = train([(200.0, "checkpoint"), *plain(5, 5.0)], rhythm, now_s)
    assert looks == 0


def test_a_deadlock_in_an_evaluation_is_noticed_by_the_evaluations_own_length() -> None:
    rhythm, now_s, _ = train([*plain(30, 10.0), (70.0, "evaluation"), *plain(30, 10.0)])
    rhythm = hang.hear(rhythm, now_s + 1.0, Talk(None, frozenset({"evaluation"})))
    assert 70 < hang.deadline_s(rhythm) - now_s <= 1.3 * 70


def test_a_silent_evaluation_at_regular_steps_is_learned_without_stretching_plain_steps() -> None:
    history = [gap for _ in range(4) for gap in (*plain(49, 2.0), (90.0, ""))]
    rhythm, now_s, _ = train([*history, *plain(10, 2.0)])
    assert hang.deadline_s(rhythm) - now_s <= 60, "ten steps behind an evaluation"
    rhythm, now_s, looks = train([*plain(39, 2.0), (90.0, ""), *plain(3, 2.0)], rhythm, now_s)
    assert looks == 0, "at its place the evaluation is expected"


def test_the_users_own_word_counts_for_every_later_step() -> None:
    rhythm = hang.begin(0.0, FIRST_S, 120.0)
    rhythm, now_s, _ = train(plain(10), rhythm)
    assert hang.deadline_s(rhythm) - now_s == 120


def test_a_log_without_steps_is_judged_by_its_longest_silence() -> None:
    rhythm = hang.begin(0.0, 600.0, None)
    now_s = 0.0
    for quiet_s in (10.0, 1200.0, 10.0):
        now_s += quiet_s
        rhythm = hang.hear(rhythm, now_s, Talk())
    assert hang.deadline_s(rhythm) - now_s == 3 * 1200


def test_each_look_that_finds_it_alive_makes_the_next_one_later() -> None:
    rhythm, now_s, _ = train(plain(50))
    first_s = hang.deadline_s(rhythm) - now_s
    assert hang.deadline_s(hang.look_again(rhythm)) - now_s == pytest.approx(1.5 * first_s)
    assert hang.deadline_s(train(plain(1), hang.look_again(rhythm), now_s)[0]) - now_s - 3.0 == pytest.approx(first_s)


@given(st.integers(0, 2**32), st.floats(0.05, 120.0))
@settings(max_examples=60, deadline=None)
def test_ordinary_jitter_wakes_nobody(seed: int, step_s: float) -> None:
    draw = random.Random(seed)
    looks = train([(step_s * draw.uniform(0.9, 1.15), "") for _ in range(300)])[2]
    assert looks == 0


@pytest.mark.parametrize(
    ("line", "step", "hint"),
    [
        (b" iteration      100/   1000 | consumed samples: 51200 | elapsed time per iteration (ms): 3.1 |", 100, None),
        (b"saving checkpoint at iteration    1000 to /gpfs/ckpt in torch format", 1000, "checkpoint"),
        (b"Saving model checkpoint to out/checkpoint-500", None, "checkpoint"),
        (b"***** Running Evaluation *****", None, "evaluation"),
        (b"Validation DataLoader 0:  10%|#         | 3/30", None, "evaluation"),
        (b"step 12: train loss 2.1, val loss 2.3", 12, None),
        (b"torch.compile took 42 s", None, "compile"),
        (b"loading shard 3 of the dataset", None, "data"),
        (b"hello", None, None),
    ],
)
def test_lines_of_real_trainers_are_told_apart(line: bytes, step: int | None, hint: str | None) -> None:
    talk = listen(line + b"\n")
    assert talk.step == step
    assert hint is None or hint in talk.hints
