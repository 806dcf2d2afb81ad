"""Attempts are a tuple in all that their users see, whoever shares their beginning."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.records import replace
from safelaunch.run.fold.attempts import Attempts
from safelaunch.run.fold.state import Attempt


def attempt(number: int) -> Attempt:
    return Attempt(number, "1", ("n0",), 0.0)


# Which of the values so far is changed or added to, and by what.
ACTS = st.lists(st.tuples(st.integers(0, 99), st.booleans(), st.integers(1, 6)), max_size=30)


@given(st.lists(st.integers(1, 6), unique=True, max_size=5), ACTS)
def test_values_that_share_their_beginning_change_without_each_other(
        numbers: list[int], acts: list[tuple[int, bool, int]]) -> None:
    known = [tuple(map(attempt, numbers))]
    made = [Attempts.of(known[0])]
    for step, (which, adds, number) in enumerate(acts):
        old, new = known[which % len(known)], made[which % len(made)]
        found = next((one for one in old if one.number == number), None)
        assert new.find(number) == found
        if adds and found is None:
            known.append((*old, attempt(number)))
            made.append(new.adds(attempt(number)))
        else:
            known.append(tuple(dataclasses.replace(one, step=step) if one.number == number else one for one in old))
            made.append(new.changes(number, step=step))
    for wanted, seen in zip(known, made, strict=True):
        assert seen == wanted == tuple(seen) and len(seen) == len(wanted) and bool(seen) == bool(wanted)
        assert seen[:-1] == wanted[:-1] and list(reversed(seen)) == list(reversed(wanted))
        assert repr(seen) == repr(wanted)
        assert [seen[place] for place in range(-len(seen), len(seen))] == [*wanted, *wanted]
        with pytest.raises(IndexError):
            seen[len(seen)]


def test_a_copy_with_other_fields_is_that_of_dataclasses() -> None:
    one = attempt(3)
    assert replace(one, step=5, job="2") == dataclasses.replace(one, step=5, job="2") != one == replace(one)
    with pytest.raises(TypeError, match="no fields of Attempt: \\['stepp'\\]"):
        replace(one, stepp=5)   # type: ignore[call-arg]
