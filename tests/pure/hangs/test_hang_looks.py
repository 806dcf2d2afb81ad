"""When somebody looks again: never later than the moment at which a hang would count, whatever the looks have shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.hangs import hang
from safelaunch.hangs.hang import Rhythm
from safelaunch.hangs.proof import (
    ALL_LOOKS_S,
    BETWEEN_LOOKS_S,
    LAST_LOOK_S,
    EndedRanks,
    Examination,
    conclude,
    counts_at_s,
    pause_before_last_s,
    weigh,
)
from safelaunch.stacks.stacks import fold
from safelaunch.stacks.verdict import judge_hang
from safelaunch.trainlog.lines import Talk
from tests.pure.hangs.stack_values import ALL_REDUCE, DATA, USER, rank, reports

SLACK_S = 1.0   # supervisor.hang.hangs.take_overdue_turn is asked once a second
HUNG = [rank(n, ALL_REDUCE, ran=False, cpu=0.0) for n in range(4)]
BUSY = [rank(n, ALL_REDUCE, USER, ran=True, cpu=1.0) for n in range(4)]
UNREADABLE = [rank(n, (), why="ptrace is closed") for n in range(4)]


def seen(ranks: list) -> Examination:  # type: ignore[type-arg]
    groups = fold(ranks)
    return Examination(reports(*ranks), groups, judge_hang(reports(*ranks), groups=groups))


LOOKS = {name: seen(ranks) for name, ranks in (("hung", HUNG), ("busy", BUSY), ("unreadable", UNREADABLE))}


def silent_from_zero(step_s: float) -> Rhythm:
    """A training whose last step was logged at t = 0."""
    rhythm = hang.begin(-21 * step_s, 3600.0, None)
    for step in range(20):
        rhythm = hang.update(rhythm, (step - 19) * step_s, Talk(step, (), str(step)))
    return rhythm


@given(st.floats(0.05, 400.0), st.lists(st.tuples(st.sampled_from(sorted(LOOKS)), st.floats(0.0, SLACK_S),
                                                  st.floats(0.0, 60.0)), min_size=1, max_size=30))
def test_the_next_look_is_never_later_than_the_moment_at_which_the_silence_would_count(
    step_s: float, course: list[tuple[str, float, float]]
) -> None:
    rhythm = silent_from_zero(step_s)
    for name, late_s, took_s in course:
        now_s = hang.deadline_s(rhythm) + late_s + took_s
        rhythm, why_not = conclude(rhythm, now_s, [LOOKS[name]])
        if not why_not:
            return
        left_s = hang.hold_s(rhythm, now_s)
        assert hang.deadline_s(rhythm) > now_s, "no look without a pause"
        assert left_s <= 0 or hang.deadline_s(rhythm) <= now_s + left_s


@given(st.floats(0.05, 60.0), st.lists(st.floats(0.0, SLACK_S), min_size=60, max_size=60), st.integers(0, 12),
       st.floats(0.0, 15.0))
def test_a_hang_is_ended_soon_after_it_counts_however_long_the_looks_take(
    step_s: float, late: list[float], busy: int, took_s: float
) -> None:
    rhythm, now_s, looks_left = silent_from_zero(step_s), 0.0, busy
    for late_s in late:
        now_s = hang.deadline_s(rhythm) + late_s + took_s
        looks = [LOOKS["busy" if looks_left > 0 else "hung"]]
        looks_left -= 1
        rhythm, why_not = conclude(rhythm, now_s, looks, ALL_LOOKS_S)
        if why_not:
            continue
        now_s += BETWEEN_LOOKS_S + took_s
        now_s += pause_before_last_s(rhythm, now_s, looks) + LAST_LOOK_S + took_s
        rhythm, why_not = conclude(rhythm, now_s, looks)
        assert not why_not
        counts_s = now_s + hang.hold_s(rhythm, now_s)
        # Looks that began late, and those that were slow: one each of the three, and of the one before them.
        assert counts_s <= now_s <= counts_s + BETWEEN_LOOKS_S + LAST_LOOK_S + SLACK_S + 4 * took_s
        return
    raise AssertionError("it was never ended")


def test_a_hang_that_needs_eighteen_seconds_more_is_looked_at_then() -> None:
    """Seen on a real Slurm: after five looks the next one was due 136 s later."""
    rhythm = silent_from_zero(1.0)
    for now_s in (56.0, 83.0, 125.0, 187.0, 282.0):
        rhythm, why_not = conclude(rhythm, now_s, [LOOKS["hung"]])
    assert why_not.endswith(": this may pass") and counts_at_s(rhythm, [LOOKS["hung"]]) == 300.0
    assert hang.deadline_s(rhythm) == 300.0


def test_no_check_is_planned_behind_the_end_of_the_job() -> None:
    rhythm, _ = conclude(silent_from_zero(1.0), 56.0, [LOOKS["hung"]])
    due_s = hang.deadline_s(rhythm)
    assert hang.deadline_s(hang.check_before(rhythm, 56.0, due_s + 1.0)) == due_s, "it is before the end anyway"
    later = hang.postpone_check(silent_from_zero(200.0), 600.0)
    assert hang.deadline_s(later) > 700.0 == hang.deadline_s(hang.check_before(later, 600.0, 700.0))
    assert hang.check_before(later, 650.0, 700.0) == later, "the one before was a moment ago"


def test_when_a_silence_counts_is_told_where_it_may_be_a_hang_and_not_where_ranks_work() -> None:
    rhythm, _ = conclude(silent_from_zero(1.0), 56.0, [LOOKS["hung"]])
    assert counts_at_s(rhythm, [LOOKS["hung"]]) == 300.0
    assert counts_at_s(rhythm, [LOOKS["busy"]]) is None and counts_at_s(rhythm, [LOOKS["unreadable"]]) is None
    loads = seen([rank(n, DATA, ran=False, cpu=0.0) for n in range(4)])
    rhythm, why_not = conclude(silent_from_zero(1.0), 56.0, [loads])
    assert why_not.endswith("evaluation may take longer than a step")
    assert counts_at_s(rhythm, [loads]) == hang.deadline_s(rhythm)


def test_a_step_that_is_logged_ends_the_wait() -> None:
    rhythm, _ = conclude(silent_from_zero(1.0), 56.0, [LOOKS["hung"]])
    rhythm = hang.update(rhythm, 60.0, Talk(21, (), "21"))
    assert hang.deadline_s(rhythm) == 60.0 + hang.NOTICE_S


def test_the_time_in_which_the_leader_was_stopped_itself_moves_the_next_look_too() -> None:
    rhythm, _ = conclude(silent_from_zero(1.0), 230.0, [LOOKS["hung"]])
    assert hang.deadline_s(hang.forgive(rhythm, 100.0)) == hang.deadline_s(rhythm) + 100.0


def test_the_looks_of_this_file_are_what_they_are_called() -> None:
    assert weigh([LOOKS["hung"]]).is_proof and not weigh([LOOKS["hung"]]).is_sure
    assert weigh([LOOKS["busy"]]).is_alive
    assert not weigh([LOOKS["unreadable"]]).is_proof and not weigh([LOOKS["unreadable"]]).is_alive


def beside(ended: EndedRanks, ranks: list) -> Examination:  # type: ignore[type-arg]
    groups = fold(ranks)
    found = judge_hang(reports(*ranks), groups=groups, has_ended=ended is not EndedRanks.NONE)
    return Examination(reports(*ranks), groups, found, ended)


ALONE = [rank(0, ("read (ssl.py:1099)", "upload (export.py:7)", "<module> (export.py:9)"), ran=False, cpu=0.0, world=2)]
WAITS = [rank(n, ALL_REDUCE, ran=False, cpu=0.0, world=4) for n in range(3)]


def test_a_rank_that_works_alone_behind_the_others_end_has_an_hour_and_one_that_waits_for_them_has_not() -> None:
    rows = {   # (is it proof at once, seconds that it must last)
        "no rank has ended, so one is missing": (beside(EndedRanks.NONE, ALONE), (True, hang.HOLD_S)),
        "the others are done": (beside(EndedRanks.WELL, ALONE), (False, hang.HOLD_MOST_S)),
        "one has failed, and this one does not need it": (beside(EndedRanks.BADLY, ALONE), (False, hang.HOLD_MOST_S)),
        "one is done, and the others wait in a collective": (beside(EndedRanks.WELL, WAITS), (False, hang.HOLD_S)),
        "one has failed, and the others wait in a collective": (beside(EndedRanks.BADLY, WAITS), (True, hang.HOLD_S)),
    }
    for name, (look, wanted) in rows.items():
        weighed = weigh([look, look])
        assert weighed.is_proof and (weighed.is_sure, weighed.least_s) == wanted, (name, weighed)


def test_a_failed_rank_is_followed_by_a_check_only_where_the_log_names_steps() -> None:
    rhythm = silent_from_zero(600.0)
    assert hang.deadline_s(hang.rank_failed(rhythm, 1.0)) == 1.0 + hang.NOTICE_S
    shards = hang.begin(0.0, 3600.0, None)
    assert hang.rank_failed(shards, 1.0) == shards, "shards of a sweep do not need each other"
