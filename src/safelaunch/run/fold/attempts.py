"""A run's attempts as a value that is cheap to change at its end, where nearly all of a journal's events change it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar, overload

from safelaunch.base.records import replace


class Numbered(Protocol):
    """An attempt (run.fold.state), as far as it matters here."""

    @property
    def number(self) -> int:
        """From 1."""


Attempt = TypeVar("Attempt", bound=Numbered)


class Attempts(Sequence[Attempt]):
    """Attempts, the oldest first; nobody changes one. Those with another last attempt, and those with one more, share
    the list of all before: a tuple would be copied for each event (20,000 events of 2,000 attempts: 3.6 s, now 0.2 s).
    """

    __slots__ = ("_before", "_count", "_highest", "_last")

    def __init__(self, before: list[Attempt], count: int, last: Attempt | None, highest: int) -> None:
        self._before, self._count = before, count   # the first `count` of the list are these; it only grows
        self._last, self._highest = last, highest

    @classmethod
    def of(cls, attempts: Sequence[Attempt]) -> Attempts[Attempt]:
        """The same attempts."""
        if isinstance(attempts, Attempts):
            return attempts
        return cls(list(attempts[:-1]), max(0, len(attempts) - 1), attempts[-1] if attempts else None,
                   max((one.number for one in attempts), default=0))

    def adds(self, attempt: Attempt) -> Attempts[Attempt]:
        """With one more."""
        highest = max(self._highest, attempt.number)
        if self._last is None:
            return Attempts(self._before, 0, attempt, highest)
        # Another value may have added to the list: then this one needs its own.
        before = self._before if len(self._before) == self._count else self._before[:self._count]
        before.append(self._last)
        return Attempts(before, self._count + 1, attempt, highest)

    def find(self, number: int) -> Attempt | None:
        """The attempt of that number."""
        if self._last is not None and self._last.number == number:
            return self._last
        place = self._place(number)
        return None if place is None else self._before[place]

    def changes(self, number: int, **changes: Any) -> Attempts[Attempt]:
        """With another attempt of that number; the same where there is none."""
        if self._last is not None and self._last.number == number:
            return Attempts(self._before, self._count, _changed(self._last, changes), self._highest)
        place = self._place(number)
        if place is None:
            return self
        before = self._before[:self._count]
        before[place] = _changed(before[place], changes)
        return Attempts(before, self._count, self._last, self._highest)

    def _place(self, number: int) -> int | None:
        """Where it is among those before the last. Numbers count from 1; in a journal with a gap it is searched."""
        if number > self._highest:
            return None
        if 0 < number <= self._count and self._before[number - 1].number == number:
            return number - 1
        return next((place for place in range(self._count - 1, -1, -1) if self._before[place].number == number), None)

    def __len__(self) -> int:
        return self._count + (self._last is not None)

    def __iter__(self) -> Iterator[Attempt]:
        yield from islice(self._before, self._count)
        if self._last is not None:
            yield self._last

    @overload
    def __getitem__(self, place: int) -> Attempt: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Attempt, ...]: ...
    def __getitem__(self, place: int | slice) -> Attempt | tuple[Attempt, ...]:
        if place == -1 and self._last is not None:
            return self._last
        if isinstance(place, slice):
            return tuple(self)[place]
        number = place if place >= 0 else len(self) + place
        if not 0 <= number < len(self):
            raise IndexError(place)
        return self._last if number == self._count and self._last is not None else self._before[number]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (Attempts, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def _changed(attempt: Any, changes: dict[str, Any]) -> Any:
    return replace(attempt, **changes)
