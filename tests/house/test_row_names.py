"""Whoever names a row of the decision names one that is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain

from safelaunch.base.endings import BY_PERSON, ENDED_BY, GIVES_WAY
from safelaunch.decide.turn import alive, between
from tests.house.source import Module, modules, text_of

# Besides the rows: words by which a leader ends what no row could, or notes that somebody else has (supervisor/).
OTHERS = {"took_over", "unconfirmed", "step_cancelled", "ask_to_end", "resume"}
NAMED = {"row", "end_row", "asked_row"}


def rows_named(module: Module) -> Iterator[str]:
    """The strings that are compared with the name of a row."""
    for node in module.all(ast.Compare):
        if getattr(node.left, "id", getattr(node.left, "attr", "")) in NAMED:
            yield from filter(None, (text_of(one) for side in node.comparators for one in ast.walk(side)))


def test_whoever_names_a_row_names_one_that_is_there() -> None:
    known = {row.__name__.strip("_") for row in (*alive.ALIVE, *between.BETWEEN)} | OTHERS
    tables = {*ENDED_BY, *GIVES_WAY, *chain.from_iterable(GIVES_WAY.values()), *BY_PERSON, *alive.ASKING}
    rooms = [module for module in modules()
             if module.path.startswith(("decide/", "supervisor/")) or module.path == "run/fold/folding.py"]
    compared = {name: module.path for module in rooms for name in rows_named(module)}
    assert tables | set(compared) <= known, {name: compared.get(name) for name in (tables | set(compared)) - known}
