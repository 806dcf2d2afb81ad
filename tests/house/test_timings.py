"""The times that hang on the lease stand in one module."""

from __future__ import annotations

import ast

from safelaunch.base import timing
from tests.house.source import modules


def test_no_other_module_has_a_time_of_its_own_by_these_names() -> None:
    named = {name for name in vars(timing) if name.endswith("_S")} - {"SETTLE_S", "PATIENT_S", "SILENT_S", "STALE_S"}
    for module in modules():
        if (module.path.startswith("supervisor/") or "/io/" in module.path) or module.path == "run/plan.py":
            for node in module.tree.body:
                if isinstance(node, ast.Assign):
                    assert named.isdisjoint(ast.unparse(target) for target in node.targets), module.path
