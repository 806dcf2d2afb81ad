"""Where the time of a run went: seconds by kind, out of a journal."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.model import Event
from safelaunch.status import costs, shares

Row = tuple[float, str, dict[str, Any]]


def events(*rows: Row) -> list[Event]:
    """A journal of (time, kind, fields)."""
    return [Event(t, 1, number, "n0", kind, data) for number, (t, kind, data) in enumerate(rows)]


def seconds(journal: list[Event], until: float, is_over: bool = True) -> dict[str, float]:
    """Seconds by kind, without the kinds that have none."""
    tracks = costs.follow(journal, until)
    spans = shares.divide(tracks, shares.read_jobs(journal, until), until, is_over)
    return {kind: round(value, 3) for kind, value in shares.totals(spans).items() if value > 0}


def attempt(number: int, start: float, resume: int, *points: tuple[float, int], end: float, how: str,
            job: str = "1") -> list[Row]:
    """The rows of one attempt."""
    return [(start, "attempt_started", {"attempt": number, "job": job, "resume_step": resume}),
            *((t, "progress", {"attempt": number, "step": step, "counter": "N"}) for t, step in points),
            (end, "attempt_ended", {"attempt": number, "how": how})]


BEGIN: list[Row] = [(0.0, "submitted", {"job": "1"}), (100.0, "job_started", {"job": "1", "nodes": ["n0"]})]


def test_a_run_without_a_fault_has_queue_boot_start_and_useful_time() -> None:
    journal = events(*BEGIN, *attempt(1, 120, 0, (161, 1), (180, 20), (200, 40), end=205, how="completed"))
    assert seconds(journal, 205) == {"queue": 100, "boot": 20, "start": 41, "useful": 44}


def test_steps_behind_the_checkpoint_are_made_again_and_not_useful_twice() -> None:
    journal = events(*BEGIN, *attempt(1, 100, 0, (101, 1), (120, 20), (150, 50), end=160, how="failed"),
                     *attempt(2, 170, 30, (181, 31), (200, 50), (220, 70), end=220, how="completed"))
    found = seconds(journal, 220)
    assert found["redone"] == 19 and found["down"] == 20 and found["useful"] == 49 + 20


def test_a_hang_lasts_from_the_last_step_to_the_end_unless_a_step_came_after_it() -> None:
    hung = (400.0, "hang_suspected", {"attempt": 1, "silent_s": 200, "phase": "step"})
    steps = ((101.0, 1), (120.0, 20), (150.0, 50))
    rows = attempt(1, 100, 0, *steps, end=450, how="failed")
    assert seconds(events(*BEGIN, *rows[:-1], hung, rows[-1]), 450)["hang"] == 300
    later = (420.0, "progress", {"attempt": 1, "step": 51})
    assert "hang" not in seconds(events(*BEGIN, *rows[:-1], hung, later, rows[-1]), 450)


def test_the_last_step_told_again_at_the_end_of_a_hang_is_no_step_after_it() -> None:
    rows = attempt(1, 110.0, 0, (130.0, 10), (210.0, 50), (500.0, 50), end=500.0, how="failed")
    hung = (400.0, "hang_suspected", {"attempt": 1, "silent_s": 200, "phase": "step"})
    assert seconds(events(*BEGIN, *rows[:-2], hung, *rows[-2:]), 500.0)["hang"] == 290.0


def test_nodes_that_are_kept_count_until_they_are_released() -> None:
    journal = events(*BEGIN, *attempt(1, 100, 0, (101, 1), (150, 50), end=150, how="failed"),
                     (150.0, "preserved", {"until": 900.0, "nodes": ["n0"]}), (250.0, "released", {}),
                     *attempt(2, 300, 50, (301, 51), (320, 70), end=320, how="completed"))
    found = seconds(journal, 320)
    assert (found["preserved"], found["down"]) == (100, 50)


def test_the_time_until_the_next_job_starts_is_queue() -> None:
    journal = events(*BEGIN, *attempt(1, 100, 0, (101, 1), (150, 50), end=150, how="interrupted"),
                     (450.0, "job_started", {"job": "2", "nodes": ["n0"]}),
                     *attempt(2, 460, 50, (461, 51), (470, 60), end=470, how="completed", job="2"))
    found = seconds(journal, 470)
    assert (found["queue"], found["boot"]) == (100 + 300, 10)


def test_a_host_whose_clock_is_slow_makes_no_second_count_twice() -> None:
    journal = events((50.0, "submitted", {"job": "1"}), (40.0, "job_started", {"job": "1", "nodes": ["n0"]}),
                     *attempt(1, 45, 0, (46, 1), (90, 45), end=95, how="failed"),
                     *attempt(2, 80, 45, (82, 46), (120, 70), end=120, how="completed"))
    assert sum(seconds(journal, 120).values()) == 120 - 45


def test_a_run_that_waits_for_its_first_job_has_spent_all_of_its_time_in_the_queue() -> None:
    assert seconds(events(BEGIN[0]), 50, is_over=False) == {"queue": 50}


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 80), st.integers(0, 60), st.integers(1, 60), st.booleans()),
                max_size=5), st.booleans())
def test_every_second_has_one_kind_whatever_the_attempts_do(rows: list[tuple[float, float, int, int, bool]],
                                                           is_over: bool) -> None:
    journal, t = list(BEGIN), 100.0
    for number, (wait, length, resume, made, is_hung) in enumerate(rows, 1):
        start = t + wait
        t = start + length
        one = attempt(number, start, resume, (start + length / 2, resume + made), end=t, how="failed", job=str(number))
        journal += [*one[:-1], *([(t, "hang_suspected", {"attempt": number})] if is_hung else []), one[-1]]
    until = t + 10
    tracks = costs.follow(events(*journal), until)
    spans = shares.divide(tracks, shares.read_jobs(events(*journal), until), until, is_over)
    assert abs(sum(span.seconds for span in spans) - until) < 1e-6
    assert all(before.end_t == after.start_t for before, after in pairwise(spans))
