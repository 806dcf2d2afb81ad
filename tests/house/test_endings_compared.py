"""Ends are compared by their members, not by words."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from safelaunch.base.endings import AttemptEnd, JobEnd, RunEnd
from tests.house.source import Module, modules, text_of

NAMES = ("how", "said_how", "ended", "ending")


def compared(module: Module) -> Iterator[str]:
    """The strings that are compared with what is named like an end."""
    for node in module.all(ast.Compare):
        if ast.unparse(node.left).rpartition(".")[2] in NAMES:
            yield from (text_of(part) for one in node.comparators for part in ast.walk(one))


def test_ends_are_compared_by_their_members() -> None:
    known = {*AttemptEnd, *RunEnd, *JobEnd}
    found = {module.path: word for module in modules() for word in compared(module) if word in known}
    assert not found
