"""This leader's place in the journal: its generation, its claims, what it writes and the state that follows."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.base.model import Event
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.io import journal
from safelaunch.status.shares import Books


class LeaderJournal:
    """`state` is the fold of all that is known; `gen` 0 = not started yet."""

    writer: journal.Writer

    def __init__(self, now_s: float) -> None:
        self.state = State()
        self.history: tuple[Event, ...] = ()    # the journal at this leader's start
        self.gen = self.claim_number = 0
        self.claimed_s = now_s                  # before the last claim was published
        self.last_row = ""                      # of decide
        self.books = Books()                    # where the time went, by the lines that are written

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

    def record(self, events: Sequence[Event], noted: Sequence[Event], deadline_s: float) -> None:
        """Write the events, behind those that were noted, with one fsync that is awaited for so long; fold them into
        the state.
        """
        self.writer.write(*noted, *events, deadline_s=deadline_s)
        self.state = fold(events, self.state)
        self.books.add((*noted, *events))

    def note(self, event: Event) -> None:
        """Fold an event that is not worth a journal line."""
        self.state = fold([event], self.state)

    def note_row(self, row: str) -> None:
        """The row of the last decision that was carried out."""
        self.last_row = row
