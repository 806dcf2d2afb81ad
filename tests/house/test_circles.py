"""No modules import each other in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from tests.house.source import imported, trees


def imports_of(tree: ast.AST, names: frozenset[str]) -> Iterator[str]:
    """Which of the names a module imports, or imports from."""
    for name in imported(tree):
        module = name if name in names else name.rpartition(".")[0]
        if module in names:
            yield module


def find_cycle(trees: Mapping[str, ast.Module]) -> list[str]:
    """Modules that import each other in a circle; [] = there is none."""
    names = frozenset(trees)
    sorter = TopologicalSorter({name: set(imports_of(tree, names)) - {name} for name, tree in trees.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert find_cycle(trees()) == []


def test_a_circle_hidden_in_a_function_is_found() -> None:
    texts = {"a": "import b", "b": "def f():\n    from c import x", "c": "import a.b\nimport a"}
    assert set(find_cycle({name: ast.parse(text) for name, text in texts.items()})) == {"a", "b", "c"}
