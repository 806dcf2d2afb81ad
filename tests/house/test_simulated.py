"""Every comment on the simulation names a scenario that exists: `(simulated: test_found "name")`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.house.source import ROOT, modules


def test_every_comment_on_the_simulation_names_a_scenario_that_exists() -> None:
    """A key of a table of that file, or a test's name with spaces."""
    wrong, known = [], dict[str, set[str]]()
    for module in modules():
        text = re.sub(r"\s*\n\s*(# )?", " ", module.text)
        for at in re.finditer(r"\(simulated|simulated\)|found by simulation", text):
            named = re.match(r'\(simulated: (\w+) "([^"]+)"\)', text[at.start():])
            if named is not None and named[1] not in known:
                known[named[1]] = scenarios_of(ROOT / "tests" / "simulation" / f"{named[1]}.py")
            if named is None or named[2] not in known[named[1]]:
                wrong.append(f"{module.path}: {text[at.start():][:100]}")
    assert wrong == []


def scenarios_of(path: Path) -> set[str]:
    """The names of a file's scenarios: string keys of its tables, and its tests."""
    nodes = list(ast.walk(ast.parse(path.read_text()))) if path.exists() else []
    keys = {key.value for node in nodes if isinstance(node, ast.Dict) for key in node.keys
            if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return keys | {node.name.removeprefix("test_").replace("_", " ") for node in nodes
                   if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
