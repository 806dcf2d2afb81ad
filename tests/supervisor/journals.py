"""A leader's journal that is kept in a list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from safelaunch.base.model import Event
from safelaunch.run.fold.state import State
from safelaunch.supervisor.state.journal import LeaderJournal


class ListJournal(LeaderJournal):
    """`lines`: what was written."""

    def __init__(self, state: State | None = None) -> None:
        super().__init__(0.0, lambda: None, lambda what: 1)
        self.lines: list[Event] = []
        self.state = state or State()
        self.writer = cast(Any, SimpleNamespace(
            event=lambda name, **data: Event(100.0, 1, len(self.lines), "n0", name, data),
            write=lambda *events, deadline_s: self.lines.extend(events)))
