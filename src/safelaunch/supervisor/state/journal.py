"""This leader's place in the journal: its generation, its claims, what it writes and the state that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from safelaunch.base.model import Event, NewEvent
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.io import journal
from safelaunch.run.io.shared import DEADLINE_S
from safelaunch.status.shares import Books


class LeaderJournal:
    """`state` is the fold of all that is known; `gen` 0 = not started yet."""

    writer: journal.Writer

    def __init__(self, now_s: float, catch_up: Callable[[], None], claim: Callable[[str], int]) -> None:
        self._catch_up = catch_up               # take in what has come, before the folder is waited for
        self.claim = claim                      # the number of a claim that is now ours; 0 = the folder does not answer
        self.state = State()
        self.history: tuple[Event, ...] = ()    # the journal at this leader's start
        self.gen = self.claim_number = 0
        self.claimed_s = now_s                  # before the last claim was published
        self.last_row = ""                      # of decide
        self.books = Books()                    # where the time went, by the lines that are written
        self.unwritten: list[Event] = []        # folded already; their lines go with the next ones

    def note_claims(self, number: int) -> None:
        """Others have published claims up to this number."""
        self.claim_number = number

    def note_claim(self, number: int, at_s: float) -> None:
        """The last claim that this leader has tried."""
        self.claim_number, self.claimed_s = number, at_s

    def lead_as(self, gen: int) -> None:
        """A generation of its own."""
        self.gen = gen

    def attach(self, history: Sequence[Event], writer: journal.Writer) -> None:
        """All that earlier supervisors have written, and this one's own file."""
        self.history, self.state, self.writer = tuple(history), fold(history), writer
        self.books = Books()
        self.books.add(history)

    def event(self, event: str, **data: Any) -> Event:
        """An event at the present time; write it with `record`."""
        return self.writer.event(event, **data)

    def events(self, new: Iterable[NewEvent]) -> list[Event]:
        """The same of events that were decided on elsewhere."""
        return [self.event(one.event, **one.data) for one in new]

    def record(self, *events: Event, noted: Sequence[Event] = (), is_awaited: bool = True) -> None:
        """Write the events, behind those that were noted, with one fsync; fold them into the state. What is not awaited
        is durable no later than the next events that are.
        """
        self._catch_up()
        noted, self.unwritten = (*self.unwritten, *noted), []
        self.writer.write(*noted, *events, deadline_s=DEADLINE_S if is_awaited else 0.0)
        self.state = fold(events, self.state)
        self.books.add((*noted, *events))

    announce = record   # either way the line is on disk before the next step

    def note(self, event: Event) -> None:
        """Fold an event that is not worth a journal line."""
        self.state = fold([event], self.state)

    def note_clock_step(self, by_s: float) -> None:
        """The wall clock has stepped, perhaps while the folder is waited for: the run's times step with it."""
        life_t, until = self.state.life_t, self.state.preserving_until
        if life_t is not None or until is not None:
            self.unwritten.append(self.writer.event(
                "clock_stepped", by_s=round(by_s, 3), life_t=None if life_t is None else life_t + by_s,
                preserving_until=None if until is None else until + by_s))
            self.note(self.unwritten[-1])

    def note_row(self, row: str) -> None:
        """The row of the last decision that was carried out."""
        self.last_row = row
