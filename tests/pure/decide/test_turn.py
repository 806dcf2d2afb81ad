"""The loop's turns: nothing starts, and no attempt is judged, before what happens to the job is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.decide.facts.turn import StepDown, Turn, TurnFacts, judge, step_down
from tests.tables import each

OVER = TurnFacts(lives=True, is_fenced=True, has_last_lines=True)


@each(("facts", "expected"), [
    (TurnFacts(), Turn.DECIDE),
    (TurnFacts(is_unexplained=True), Turn.WAIT),
    (TurnFacts(is_leaving=True), Turn.WAIT),
    (TurnFacts(lives=True), Turn.DECIDE),
    (TurnFacts(lives=True, is_unexplained=True), Turn.DECIDE),
    (OVER._replace(has_last_lines=False), Turn.WAIT),
    (OVER._replace(is_unexplained=True), Turn.WAIT),
    (OVER._replace(is_alone=True), Turn.WAIT),
    (OVER._replace(is_log_read=False), Turn.READ_LOG),
    (OVER._replace(is_asking=True), Turn.WAIT),
    (OVER, Turn.CLOSE),
], ids=[
    "nothing runs", "a TERM came, perhaps a person's cancel", "the run goes to its next job", "an attempt trains",
    "a TERM came while it trains", "its last lines are still on their way", "it left well on a TERM nobody explains",
    "this node was cut off, and the healthy one would be blamed", "a preemption with grace ends the steps alone",
    "Slurm has not answered who ended it", "it is over, and all is known",
])
def test_what_the_loop_does_next(facts: TurnFacts, expected: Turn) -> None:
    assert judge(facts) is expected


@given(st.builds(TurnFacts, *[st.booleans()] * 8))
def test_an_attempt_is_judged_only_once_it_is_fenced_and_its_end_explained(facts: TurnFacts) -> None:
    if judge(facts) in (Turn.CLOSE, Turn.READ_LOG):
        assert facts.lives and facts.is_fenced and facts.has_last_lines
        assert not (facts.is_unexplained or facts.is_alone or facts.is_asking)


@each(("by", "wants_standby", "expected"), [
    ("n1", True, StepDown(ends_attempt=True, stands_by=True)),
    ("n1", False, StepDown(ends_attempt=True, stands_by=False)),
    ("n0", True, StepDown(ends_attempt=False, stands_by=True)),
    (None, True, StepDown(ends_attempt=False, stands_by=False)),
], ids=["its standby leads", "... and wants none", "its own successor on this host leads, and its guards answer there",
        "the folder is another run's"])
def test_how_a_superseded_leader_steps_down(by: str | None, wants_standby: bool, expected: StepDown) -> None:
    assert step_down(by, "n0", wants_standby=wants_standby) == expected
