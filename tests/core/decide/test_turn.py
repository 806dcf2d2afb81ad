"""The loop's turns: nothing starts, and no attempt is judged, before what happens to the job is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.core.decide.turn import Turn, TurnFacts, judge

OVER = TurnFacts(lives=True, is_fenced=True, has_last_words=True)


@pytest.mark.parametrize(("standing", "expected"), [
    (TurnFacts(), Turn.DECIDE),
    (TurnFacts(is_unexplained=True), Turn.WAIT),
    (TurnFacts(is_leaving=True), Turn.WAIT),
    (TurnFacts(lives=True), Turn.DECIDE),
    (TurnFacts(lives=True, is_unexplained=True), Turn.DECIDE),
    (replace(OVER, has_last_words=False), Turn.WAIT),
    (replace(OVER, is_unexplained=True), Turn.WAIT),
    (replace(OVER, is_alone=True), Turn.WAIT),
    (replace(OVER, was_looked=False), Turn.LOOK),
    (replace(OVER, is_asking=True), Turn.WAIT),
    (OVER, Turn.CLOSE),
], ids=[
    "nothing runs", "a TERM came, perhaps a person's cancel", "the run goes to its next job", "an attempt trains",
    "a TERM came while it trains", "its last lines are still on their way", "it left well on a TERM nobody explains",
    "this node was cut off, and the healthy one would be blamed", "a preemption with grace ends the steps alone",
    "Slurm has not answered who ended it", "it is over, and all is known",
])
def test_what_the_loop_does_next(standing: TurnFacts, expected: Turn) -> None:
    assert judge(standing) is expected


@given(st.builds(TurnFacts, *[st.booleans()] * 8))
def test_an_attempt_is_judged_only_once_it_is_fenced_and_its_end_explained(standing: TurnFacts) -> None:
    if judge(standing) in (Turn.CLOSE, Turn.LOOK):
        assert standing.lives and standing.is_fenced and standing.has_last_words
        assert not (standing.is_unexplained or standing.is_alone or standing.is_asking)
