"""Long tables as one test: as `pytest.mark.parametrize`, without a test's own cost for each row."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

SHOWN = 2000   # characters of what is wrong with one row

Test = Callable[..., None]


def each(
    names: str | tuple[str, ...], rows: Iterable[Any], *, called: Callable[[Any], object] = repr,
) -> Callable[[Test], Test]:
    """Try the test on all rows; those that fail are named together, each by `called(row)` and what is wrong with it.

    For pure tests only: fixtures are made once for all rows.
    """
    wanted = (names,) if isinstance(names, str) else names
    table = tuple(rows)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def tried(**fixtures: Any) -> None:
            assert table, "a table without rows proves nothing"
            wrong = []
            for row in table:
                values = (row,) if isinstance(names, str) else row
                try:
                    test(**fixtures, **dict(zip(wanted, values, strict=True)))
                except Exception as said:   # noqa: BLE001
                    wrong.append(f"{called(row)}: {type(said).__name__}: {said}"[:SHOWN])
            if wrong:
                pytest.fail("\n".join([f"{len(wrong)} of {len(table)} rows:", *wrong]), pytrace=False)

        vars(tried)["__signature__"] = signature.replace(
            parameters=[one for name, one in signature.parameters.items() if name not in wanted])
        return tried

    return decorate
