"""docs/frameworks.md: its table is held to the tests, its files to those that the tests run. Needs no package."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from tests.frameworks import test_scripts, test_trainings
from tests.localruns import ROOT

PAGE = (ROOT / "docs" / "frameworks.md").read_text()
MODULES: dict[str, ModuleType] = {"test_scripts.py": test_scripts, "test_trainings.py": test_trainings}


def ids_of(test: Any) -> set[str]:
    """The names that a test is run with."""
    (names,) = [mark.args[1] for mark in test.pytestmark if mark.name == "parametrize"]
    return set(names)


def columns() -> list[list[str]]:
    """The table's columns below its head, without the first: the test, then a cell for each framework."""
    rows = PAGE.partition("| | progress read |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")][1:] for row in rows]
    return [list(column) for column in zip(*cells, strict=True)]


def test_each_cell_of_the_table_is_a_test_and_each_test_a_cell() -> None:
    table = columns()
    assert len(table) == 5
    for test, *cells in table:
        module, _, name = test.strip("`").partition("::")
        ids = ids_of(getattr(MODULES[module], name))
        assert sorted(cell.strip("`[]") for cell in cells if cell != "not run here") == sorted(ids), test
        assert all(cell == "not run here" or re.fullmatch(r"`\[[\w-]+\]`", cell) for cell in cells), cells


def test_the_files_that_are_shown_are_those_that_the_tests_run() -> None:
    shown = re.findall(r"(?ms)^## [^\n]+\n\n```yaml\n(.*?)^```", PAGE)
    files = {path.read_text() for path in test_scripts.SCRIPTS.glob("*/train.yaml")}
    assert len(shown) == 8 and set(shown) <= files
