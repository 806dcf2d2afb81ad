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
Function = ast.FunctionDef | ast.AsyncFunctionDef
Sequence = ast.List | ast.Tuple | ast.Set
# Methods by which a list, set or dict is changed.
CHANGING = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}


class Module:
    """A file: its path, its text, and its tree once a rule asks for it."""

    def __init__(self, path: Path, below: Path) -> None:
        self.path = path.relative_to(below).as_posix()   # slurm/via.py
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

    def all(self, kind: type[Node]) -> list[Node]:
        """Its nodes of this kind, in the order of `ast.walk`."""
        return cast("list[Node]", self._by_kind.get(kind, []))

    def functions(self) -> Iterator[Function]:
        """All functions, those inside of functions included."""
        yield from self.all(ast.FunctionDef)
        yield from self.all(ast.AsyncFunctionDef)

    def sequences(self) -> Iterator[Sequence]:
        """All tuples, lists and sets that it writes out."""
        yield from self.all(ast.List)
        yield from self.all(ast.Tuple)
        yield from self.all(ast.Set)


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


def imported(tree: ast.AST) -> Iterator[str]:
    """What a module imports, also inside of functions and for types only: dotted names, of `from a import b` a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def text_of(node: ast.AST | None) -> str:
    """The value of a constant that is a string; else ""."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
