"""No second table of categories stands anywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from safelaunch.why.categories import TABLE
from tests.house.source import Module, modules

TABLES = ("why/causes/surroundings.py", "why/causes/program.py")   # two halves of one
MANY = 4   # so many of their names in one literal are a table of categories


def literals(module: Module) -> Iterator[list[str]]:
    """Strings of each tuple, list or set, and each dict's keys."""
    parts = [[key for key in node.keys if key is not None] for node in module.all(ast.Dict)]
    parts += [node.elts for node in module.sequences()]
    for one in parts:
        yield [str(part.value) for part in one if isinstance(part, ast.Constant)]


def test_no_other_module_lists_categories() -> None:
    found = {module.path: names for module in modules() if module.path not in TABLES for names in literals(module)
             if len(names) >= MANY and set(names) <= set(TABLE)}
    assert not found
