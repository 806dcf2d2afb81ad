"""What follows a failure: one table from causes to actions, why.categories.

`restart.policy` in train.yaml replaces single rows of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from safelaunch.run.plan import Plan
from safelaunch.why.categories import TABLE


class Response(NamedTuple):
    """One row. `budget` None = only the run's own budgets count; `is_own` = the user wrote it."""

    category: str
    then: str
    budget: int | None
    why: str
    is_own: bool = False

    @property
    def text(self) -> str:
        return self.then if self.budget is None else f"{self.then} {self.budget}"


DEFAULTS = {name: Response(name, row.then, row.budget, row.because) for name, row in TABLE.items() if row.then}


def table(own: Iterable[tuple[str, str]] = ()) -> dict[str, Response]:
    """Every category's row, the user's own ("word" or "word N") in place of the default's."""
    rows = dict(DEFAULTS)
    for category, text in own:
        word, _, number = text.partition(" ")
        before = rows.get(category, DEFAULTS["unknown"])
        rows[category] = Response(category, word, int(number) if number else None, before.why, is_own=True)
    return rows


def response(plan: Plan, category: str | None) -> Response:
    """The row of a category; one that this version does not know counts as unknown."""
    rows = table(plan.restart.policy)
    return rows.get(category or "unknown", rows["unknown"])
