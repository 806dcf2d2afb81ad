"""The ways to a next job stand in one table."""

from __future__ import annotations

import ast

from safelaunch.slurm import via
from tests.house.source import modules


def test_no_other_module_lists_the_ways() -> None:
    lists = {module.path for module in modules() for node in module.sequences()
             if len({part.value for part in node.elts if isinstance(part, ast.Constant)} & set(via.WAYS)) > 1}
    assert lists == {"slurm/via.py"}
