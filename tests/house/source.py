"""The source as the rules read it: each file is read, parsed and walked once a process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar, cast

import safelaunch

ROOT = Path(__file__).parents[2]
SRC = Path(safelaunch.__file__).parent
Node = TypeVar("Node", bound=ast.AST)


class Module:
    """A file: its path, its text, and its tree once a rule asks for it."""

    def __init__(self, path: Path, below: Path) -> None:
        self.path = path.relative_to(below).as_posix()   # core/via.py
        self.text = path.read_text()
        self.name = ".".join((below.name, *Path(self.path).with_suffix("").parts)).removesuffix(".__init__")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            found.setdefault(type(node), []).append(node)
        return found

    def all(self, *kinds: type[Node]) -> Iterator[Node]:
        """Its nodes of these kinds, kind by kind, each kind in the order of `ast.walk`."""
        for kind in kinds:
            yield from cast("list[Node]", self._by_kind.get(kind, []))


@cache   # not when a test's module is imported: each worker collects all tests
def modules(room: str = "") -> tuple[Module, ...]:
    """All of the package, or those of one of its folders."""
    if room:
        return tuple(module for module in modules() if module.path.startswith(f"{room}/"))
    return tuple(Module(path, SRC) for path in sorted(SRC.rglob("*.py")))


@cache
def trees() -> dict[str, ast.Module]:
    """Dotted name → syntax tree, of all modules."""
    return {module.name: module.tree for module in modules()}


def text_of(node: ast.AST | None) -> str:
    """The value of a constant that is a string; else ""."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
