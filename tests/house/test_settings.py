"""Settings are one value: each key has its field, and nobody changes them after they are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import get_type_hints

from safelaunch.config.keys import ROWS
from safelaunch.launch.settings import FIELDS, Settings
from tests.house.source import CHANGING, modules

SET_BY_SUBMIT = {"env", "slurm", "own", "after"}   # open sections; what a script or --after asks for


def written_into(node: ast.AST) -> ast.AST | None:
    """What is changed in place: `x` of `x[…] = …`, `x.y = …`, `del x[…]` and `x.update(…)`."""
    if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        return node.value
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING
    return node.func.value if is_call else None   # type: ignore[attr-defined]


def words(node: ast.AST | None) -> Iterator[str]:
    """The words of `a.b["c"].d`, without the c."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            yield node.attr
        node = node.value
    if isinstance(node, ast.Name) and node.id == "settings":
        yield node.id


def repaints(tree: ast.AST) -> int:
    return sum(not {"settings", "config"}.isdisjoint(words(written_into(node))) for node in ast.walk(tree))


def test_no_code_changes_settings_in_place() -> None:
    assert repaints(ast.parse("a.config['slurm']['nodes'] = 1; settings.env.update(x=1); del one.settings.a")) == 3
    assert {module.path: count for module in modules() if (count := repaints(module.tree))} == {
        "sandbox/conf.py": 1}   # slurm.conf's


def test_each_key_has_a_field_and_each_field_its_key() -> None:
    named: dict[str, set[str]] = {}
    for _, section, _, field, _ in ROWS:
        named.setdefault(section, set()).add(field)
    sections = {section for section in named if section}
    assert set(Settings._fields) - named[""] - sections == SET_BY_SUBMIT
    hints = get_type_hints(Settings)
    assert {section: set(FIELDS[section].values()) - named[section] for section in sections
            if set(FIELDS[section].values()) - named[section]} == {
        "checks": {"programs"}, "hang": {"is_on", "is_imported"}, "slow": {"is_on"}}
    assert all(set(hints[section]._fields) == set(FIELDS[section].values()) for section in sections)
