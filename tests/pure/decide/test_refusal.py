"""Attempts that Slurm could not start, or ended in unknown words: they cost nothing, wait longer, and not for ever."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.endings import AttemptEnd
from safelaunch.decide.ends.refusal import MAX_PAUSE_S, MOST_REFUSALS, Said, in_a_row, judge
from tests.pure.decide.situations import NOW, history
from tests.tables import each

NO_STEP = Said(no_step=True)


@each(("how", "said", "refusals", "expected"), [
    ("failed", Said(), 0, ("failed", None)),
    ("failed", NO_STEP, 0, ("interrupted", NOW + 5.0)),
    ("failed", NO_STEP, 3, ("interrupted", NOW + 40.0)),
    ("failed", NO_STEP, 7, ("interrupted", NOW + 300.0)),
    ("failed", NO_STEP, MOST_REFUSALS, ("failed", None)),
    ("failed", NO_STEP._replace(has_exits=True), 0, ("failed", None)),
    ("failed", Said(is_unread=True, has_exits=True), 0, ("interrupted", NOW + 5.0)),
    ("failed", Said(no_overlap=True), 0, ("interrupted", None)),
    ("failed", Said(no_overlap=True, has_exits=True), 0, ("failed", None)),
    ("failed", NO_STEP._replace(no_overlap=True), MOST_REFUSALS, ("interrupted", None)),
    ("lost", NO_STEP, 0, ("lost", None)),
    ("completed", Said(is_unread=True), 0, ("completed", None)),
], ids=[
    "the training failed", "srun could start no task", "... for the fourth time", "... for half an hour",
    "... for 40 minutes", "a task had started", "Slurm ended the step in words of a later release",
    "srun refuses --overlap", "... of a helper, after the training had started", "... after 40 minutes of refusals",
    "a node was lost as well", "it has completed",
])
def test_whose_fault_a_failure_was(how: str, said: Said, refusals: int, expected: tuple[str, float | None]) -> None:
    assert judge(AttemptEnd(how), said, refusals, NOW) == expected


@given(st.sampled_from(AttemptEnd), st.builds(Said, *[st.booleans()] * 4),
       st.integers(0, 2000))
def test_no_refusal_makes_a_run_wait_for_long_or_changes_another_word(
    how: AttemptEnd, said: Said, refusals: int
) -> None:
    word, not_before = judge(how, said, refusals, NOW)
    assert word == how or (how, word) == ("failed", "interrupted")
    assert not_before is None or NOW < not_before <= NOW + MAX_PAUSE_S


def test_refusals_are_counted_from_the_last_attempt_that_slurm_took() -> None:
    attempts = history("failed", "interrupted", "interrupted", "failed").attempts
    refused = tuple(replace(one, not_before=NOW if one.ended == "interrupted" else None) for one in attempts)
    assert in_a_row(replace(history("failed"), attempts=refused)) == 2
    assert in_a_row(replace(history("failed"), attempts=refused[:2])) == 0
    assert in_a_row(history("failed")) == 0
