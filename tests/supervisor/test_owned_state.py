"""Who may write what in supervisor/: each field has one class, and only the file of that class writes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import safelaunch.supervisor

ROOM = Path(safelaunch.supervisor.__file__).parent
FILES = sorted(ROOM.rglob("*.py"))
MOST_FIELDS = 15
# What is still to be given an owner: it shrinks, and takes nothing new.
TOO_LARGE: dict[str, int] = {"Standby": 17}
FOREIGN: dict[str, str] = {}


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield str(path.relative_to(ROOM)), node


def fields_of(made: ast.ClassDef) -> frozenset[str]:
    """What its body declares, and what its methods assign to `self`."""
    declared = {line.target.id for line in made.body if isinstance(line, ast.AnnAssign)
                and isinstance(line.target, ast.Name)}
    return frozenset(declared | {target.attr for target in assigned(made) if is_self(target)})


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Attributes that are assigned or deleted, or of whose items one is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            node = node.value
        elif not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            continue
        if isinstance(node, ast.Attribute):
            yield node


def is_self(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id == "self"


def test_no_class_of_the_supervisor_has_more_fields_than_one_can_keep_in_mind() -> None:
    counts = {made.name: len(fields_of(made)) for _, made in classes()}
    assert not {name: count for name, count in counts.items() if count > TOO_LARGE.get(name, MOST_FIELDS)}


def test_no_field_is_assigned_outside_the_file_that_owns_it() -> None:
    own: dict[str, set[str]] = {}
    for file, made in classes():
        own.setdefault(file, set()).update(fields_of(made))
    found: dict[str, set[str]] = {}
    for path in FILES:
        file = str(path.relative_to(ROOM))
        for target in assigned(ast.parse(path.read_text())):
            if not is_self(target) and target.attr not in own.get(file, ()):
                found.setdefault(file, set()).add(target.attr)
    assert not {file: fields for file, fields in found.items() if fields - set(FOREIGN.get(file, "").split())}
