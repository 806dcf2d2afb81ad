"""The leader's standby: when another one is started, and where."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.decide.jobs.standby import LOST_S, StandbyFacts, StandbyStep, choose, judge
from tests.tables import each

NONE = StandbyFacts()
STARTED = StandbyFacts(is_started=True)
SILENT = StandbyFacts(LOST_S, is_known=True, is_late=True, may_start=False)


@each(("facts", "expected"), [
    (StandbyFacts(0.5, has_answered=True), StandbyStep.KEEP),
    (StandbyFacts(0.5), StandbyStep.NOTHING),
    (StandbyFacts(LOST_S - 0.1, has_answered=True, is_started=True, is_late=True), StandbyStep.KEEP),
    (STARTED, StandbyStep.NOTHING),
    (replace(STARTED, is_late=True), StandbyStep.LOST),
    (replace(STARTED, has_ended=True), StandbyStep.LOST),
    (SILENT, StandbyStep.LOST),
    (replace(SILENT, is_late=False), StandbyStep.NOTHING),
    (NONE, StandbyStep.START),
    (replace(NONE, is_late=True), StandbyStep.START),
    (replace(NONE, can_run=False), StandbyStep.NOTHING),
    (replace(NONE, may_start=False), StandbyStep.NOTHING),
    (replace(STARTED, has_ended=True, can_run=False), StandbyStep.LOST),
], ids=["it answers", "it has called, and not answered yet", "it answers late", "it is starting",
        "it did not come up", "its step has ended", "an earlier leader's has been silent", "... and may still call",
        "there is none", "... since this leader's start", "no helper step can run here", "the last one was just lost",
        "... and its own has ended"])
def test_what_a_leader_does_about_its_standby(facts: StandbyFacts, expected: StandbyStep) -> None:
    assert judge(facts) is expected


NODES = ("n0", "n1", "n2", "n3")


@each(("bad", "tried", "used", "expected"), [
    (("n0",), (), ("n0", "n1", "n2"), "n3"),
    (("n0",), (), NODES, "n3"),
    (("n0", "n3"), (), NODES, "n2"),
    (("n0",), ("n3",), NODES, "n2"),
    (("n0",), ("n1", "n2", "n3"), NODES, "n3"),
    (NODES, (), (), None),
], ids=["a spare", "no spare: the last", "... that is good", "another one after a failure", "all were tried: again",
        "none is left"])
def test_where_a_standby_runs(
        bad: tuple[str, ...], tried: tuple[str, ...], used: tuple[str, ...], expected: str | None) -> None:
    assert choose(NODES, bad, tried, used) == expected
