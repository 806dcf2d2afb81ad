"""An act on the world outside: claim ▸ intent ▸ command ▸ outcome, whatever comes in between."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from safelaunch.base.model import Event
from safelaunch.errors import SlurmRefused
from safelaunch.run import acts
from safelaunch.run.acts import ACTS, ActOutcome
from safelaunch.run.fold.folding import fold
from tests.tables import each


class Pen:
    """A writer in memory."""

    def __init__(self) -> None:
        self.seq = 0
        self.lines: list[Event] = []

    @property
    def writer(self) -> Pen:
        return self

    def event(self, event: str, **data: Any) -> Event:
        self.seq += 1
        return Event(float(self.seq), 1, self.seq, "n0", event, data)

    def announce(self, *events: Event) -> None:
        self.lines += events

    record = announce

    def told(self) -> list[tuple[str, Any]]:
        """(kind, ok) of all events."""
        return [(event.event, event.data.get("ok")) for event in self.lines]


def doing(value: str) -> Generator[str, str, ActOutcome[str]]:
    said = yield value
    return ActOutcome(said == "yes", said)


def finish(act: Generator[str, str, str], said: str) -> str:
    with pytest.raises(StopIteration) as done:
        act.send(said)
    return str(done.value.value)


def test_an_act_is_announced_before_its_command_and_its_outcome_follows_the_answer() -> None:
    pen = Pen()
    act = acts.perform(pen, "cancel", 3, doing("scancel 7"), job="7")
    assert next(act) == "scancel 7"
    assert [(event.event, event.data) for event in pen.lines] == [("intent", {"claim": 3, "act": "cancel", "job": "7"})]
    assert finish(act, "no") == "no"
    assert pen.told() == [("intent", None), ("outcome", False)]


def test_what_follows_from_an_act_is_numbered_around_its_outcome() -> None:
    pen = Pen()
    first = pen.event("decision")
    value = acts.perform_now(pen, "launch", 3, lambda: ActOutcome(
        True, "started", {"why": "x"}, first=(pen.event("attempt_started"),), then=(lambda: pen.event("submitted"),)),
        (first,), attempt=1)
    assert value == "started"
    assert [event.event for event in pen.lines] == ["decision", "intent", "attempt_started", "outcome", "submitted"]
    assert [event.seq for event in pen.lines] == [1, 2, 3, 4, 5]


@each(("error", "ok", "open_intents"), [
    (SlurmRefused("no", argv=("sbatch",), returncode=1), False, 0),
    (OSError("no space left"), None, 1),
], ids=["a refusal settles it", "of another error the next supervisor finds out what happened"])
def test_an_error_writes_an_outcome_and_goes_on(error: Exception, ok: bool | None, open_intents: int) -> None:
    pen = Pen()

    def fail() -> ActOutcome[None]:
        raise error

    with pytest.raises(type(error)):
        acts.perform_now(pen, "submit", 1, fail)
    assert pen.told() == [("intent", None), ("outcome", ok)]
    assert len(fold(pen.lines).intents) == open_intents
    acts.settle(pen, 1, "submit", None)
    assert fold(pen.lines).intents == ()


def test_a_claim_is_asked_for_until_the_folder_answers() -> None:
    answers = iter([0, 0, 7])
    waiting = acts.wait_for_claim(lambda: next(answers), 2.0)
    assert list(iter(lambda: next(waiting, None), None)) == [2.0, 2.0]


def test_each_act_has_a_sentence_of_its_own() -> None:
    assert len({kind.sentence for kind in ACTS.values()}) == len(ACTS)
