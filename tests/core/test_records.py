"""core.records.NamedTuple is typing's, in all that this project asks of one."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest

from safelaunch.core.records import NamedTuple


class Ours(NamedTuple):
    """A record."""

    a: int
    b: str = "x"
    c: tuple[int, ...] = ()

    @property
    def double(self) -> int:
        return self.a * 2


class Typings(typing.NamedTuple):
    a: int
    b: str = "x"
    c: tuple[int, ...] = ()


CALLS: dict[str, Callable[[Any], Any]] = {
    "in order": lambda made: made(1, "y", (2,)),
    "defaults": lambda made: made(1),
    "by name": lambda made: made(c=(3,), a=1),
    "mixed": lambda made: made(1, c=(3,)),
    "nothing": lambda made: made(),
    "too many": lambda made: made(1, 2, 3, 4),
    "unknown name": lambda made: made(1, z=2),
    "unknown beside a default": lambda made: made(z=2),
    "twice": lambda made: made(1, a=2),
    "made of values": lambda made: made._make([1, "y", ()]),
    "made of too few": lambda made: made._make([1]),
    "replaced": lambda made: made(1)._replace(b="z"),
    "replaced, unknown": lambda made: made(1)._replace(z="z"),
    "as a dict": lambda made: made(1)._asdict(),
    "text": lambda made: repr(made(1)).partition("(")[2],
    "fields": lambda made: (made._fields, made._field_defaults, made.__match_args__, made.__annotations__.keys()),
}


def outcome(call: Callable[[Any], Any], made: Any) -> Any:
    try:
        return call(made)
    except (TypeError, ValueError) as error:
        return type(error)


def test_it_does_what_typings_does_for_the_first_records_and_for_later_ones() -> None:
    for _ in range(3):   # the constructor changes after a few
        assert {name: outcome(call, Ours) for name, call in CALLS.items()} == {
            name: outcome(call, Typings) for name, call in CALLS.items()}


def test_it_can_be_copied_pickled_hashed_and_matched() -> None:
    one = Ours(1, "y")
    assert copy.copy(one) == pickle.loads(pickle.dumps(one)) == one and type(copy.copy(one)) is Ours
    assert hash(one) == hash(tuple(one)) and one.double == 2 and Ours.__doc__ == "A record."
    match one:
        case Ours(a, b=b):
            assert (a, b) == (1, "y")


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Ours(1).a = 2  # type: ignore[misc]
