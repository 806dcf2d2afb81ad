"""Imports inside of functions: each hides what a file needs, and is there for a start that would take too long."""

from __future__ import annotations

import ast

from tests.house.source import Module, modules

MOST = 180   # of them 80 below node, integrations and api, whose start is of others


def inner_imports(module: Module) -> set[int]:
    """Their lines."""
    return {node.lineno for function in module.functions() for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)}


def is_counted(module: Module) -> bool:
    """Not what runs in a parked interpreter, which must hold nothing that its script has not imported."""
    return not module.path.startswith("node/warm/")


def test_few_imports_stand_inside_of_functions() -> None:
    found = {module.path: len(lines) for module in modules() if is_counted(module) and (lines := inner_imports(module))}
    assert sum(found.values()) <= MOST, sorted(found.items(), key=lambda item: -item[1])
