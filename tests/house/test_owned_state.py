"""Who may write what in supervisor/: each field has one class, and only the file of that class writes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.house.source import CHANGING, modules

MOST_FIELDS = 16


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for module in modules("supervisor"):
        if not module.path.startswith("supervisor/io/"):   # the world, which has no place in a leader's state
            for made in module.all(ast.ClassDef):
                yield module.path, made


@cache
def by_name() -> dict[str, ast.ClassDef]:
    return {made.name: made for _, made in classes()}


def fields_of(made: ast.ClassDef) -> frozenset[str]:
    """What its body declares, what its methods assign to `self`, and what it inherits."""
    declared = {line.target.id for line in made.body if isinstance(line, ast.AnnAssign)
                and isinstance(line.target, ast.Name)}
    inherited = [fields_of(by_name()[name]) for name in map(ast.unparse, made.bases) if name in by_name()]
    return frozenset(declared.union({target.attr for target in changed(made) if is_self(target)}, *inherited))


def changed(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Attributes that are assigned or deleted, of whose items one is, or whose value is changed by its own method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            node = node.func.value
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            node = node.value
        elif not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            continue
        if isinstance(node, ast.Attribute):
            yield node


def is_self(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id == "self"


def test_no_class_of_the_supervisor_has_more_fields_than_one_can_keep_in_mind() -> None:
    assert not {name: len(fields_of(made)) for name, made in by_name().items() if len(fields_of(made)) > MOST_FIELDS}


def test_no_field_is_changed_outside_the_file_that_owns_it() -> None:
    own: dict[str, frozenset[str]] = {}
    for file, made in classes():
        own[file] = own.get(file, frozenset()) | fields_of(made)
    assert not [f"{module.path}:{target.lineno} {ast.unparse(target)}" for module in modules("supervisor")
                for target in changed(module.tree) if not module.path.startswith("supervisor/io/")
                if not is_self(target) and target.attr not in own.get(module.path, ())]
