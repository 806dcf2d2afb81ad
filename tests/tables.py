"""Long tables as one test: as `pytest.mark.parametrize`, without a test's own cost for each row."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

SHOWN = 2000   # characters of what is wrong with one row
LABEL = 300    # of the row itself

Test = Callable[..., None]


def each(
    names: str | tuple[str, ...], rows: Iterable[Any], *, called: Callable[[Any], object] = repr,
    ids: Iterable[str] | Callable[[Any], object] = (),
) -> Callable[[Test], Test]:
    """Try the test on all rows; those that fail are named together, each by its name and what is wrong with it.

    Its name: the one in `ids`, or `ids` of each value, as pytest has them; else `called(row)`.
    For pure tests only: fixtures are made once for all rows.
    """
    wanted = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    is_single = len(wanted) == 1 and isinstance(names, str)
    table = tuple(rows)
    named = ids if callable(ids) else tuple(ids)

    def label(number: int) -> str:
        if callable(named):
            return "-".join(str(named(value)) for value in ((table[number],) if is_single else table[number]))
        return named[number] if named else str(called(table[number]))[:LABEL]

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def tried(**fixtures: Any) -> None:
            assert table, "a table without rows proves nothing"
            wrong = []
            for number, row in enumerate(table):
                values = (row,) if is_single else row
                try:
                    test(**fixtures, **dict(zip(wanted, values, strict=True)))
                except (Exception, pytest.fail.Exception) as said:   # noqa: BLE001
                    wrong.append(f"{label(number)}: {type(said).__name__}: {said}"[:SHOWN])
            if wrong:
                pytest.fail("\n".join([f"{len(wrong)} of {len(table)} rows:", *wrong]), pytrace=False)

        vars(tried)["__signature__"] = signature.replace(
            parameters=[one for name, one in signature.parameters.items() if name not in wanted])
        return tried

    return decorate
