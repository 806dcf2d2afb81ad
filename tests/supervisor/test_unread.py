"""What a supervisor tells of a log of which it reads no step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from safelaunch.base.model import Event
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.supervisor.state import listening
from safelaunch.supervisor.state.attempt import HeardLog, RunningAttempt
from safelaunch.trainlog.lines import Talk, Unread
from tests.pure.decide.situations import PLAN
from tests.supervisor.journals import ListJournal

STARTED = Event(1.0, 1, 1, "n0", "attempt_started", {"attempt": 1, "job": "1", "nodes": ["n0"], "port": 1})


class FakeLead:
    """So much of a leader as is used here."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.running = RunningAttempt(0.0)
        self.running.heard = HeardLog(0, b"", Unread())
        self.journal = ListJournal(fold([STARTED], State()))
        self.log = listening.LiveLog(cast(Any, SimpleNamespace(plan=PLAN)), cast(Any, self), self.journal, self.running,
                                     cast(Any, self.say))

    @property
    def events(self) -> list[Event]:
        return self.journal.lines

    def say(self, text: str) -> None:
        self.said = text

    def reads(self, text: bytes, at_s: float, mark: str = "") -> list[Any]:
        self.now_s = at_s
        listening.note_unread(self.log, 1, text, Talk(mark=mark))
        return [event.data for event in self.events]


@pytest.mark.parametrize(("count", "at_s", "is_told"), [
    (100, 60.0, True), (99, 299.0, False), (1, 300.0, True), (0, 900.0, False), (500, 30.0, False),
], ids=["100 lines", "fewer, for less", "five minutes", "a silent log", "a start of many lines"])
def test_it_is_told_after_100_lines_or_five_minutes(count: int, at_s: float, is_told: bool) -> None:
    lead = FakeLead()
    found = lead.reads(b"thing 1 value 2\n" * count, at_s)
    assert bool(found) == is_told


def test_it_is_told_once_with_the_likeliest_line_and_what_to_do() -> None:
    lead = FakeLead()
    lead.reads(b"thing 7 of many, loss 0.5\nall is well 3\n" * 60, 61.0)
    lead.reads(b"thing 8 of many, loss 0.5\n" * 500, 999.0)
    (event,) = lead.events
    assert event.data == {"attempt": 1, "lines": 120, "line": "thing 7 of many, loss 0.5", "pattern": "auto"}
    assert "safelaunch progress LOG --pattern" in lead.said and "help train-yaml" in lead.said


def test_a_step_or_a_place_ends_the_search() -> None:
    lead = FakeLead()
    lead.reads(b"", 5.0, mark="epoch 0.1")
    assert lead.reads(b"thing 7\n" * 500, 999.0) == []
