"""What the programs import when they start: counted, so that no start becomes slower unseen (docs/benchmarks.md)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safelaunch

SOURCE = Path(safelaunch.__file__).parent
# What is imported → our modules, and dataclasses, at most. A dataclass takes 0.2 to 1 ms: what nobody compares, hashes
# or mixes with other types is a NamedTuple, at a quarter of it. What few runs need is imported where it is
# used.
MOST = {
    "safelaunch": (3, 0),
    "safelaunch.integrations.submitit.executor": (17, 0),
    "safelaunch.loop": (346, 44),
    "safelaunch.verbs.submit.submit": (117, 8),
    "safelaunch.verbs.status.status": (117, 10),
    "safelaunch.verbs.logs.logs": (105, 13),
    "safelaunch.verbs.why.why": (125, 18),
}
COUNT = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "safelaunch"}
made = {f"{name}.{one.__qualname__}" for name, module in ours.items() for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == name and "__dataclass_fields__" in vars(one)}
print(json.dumps([len(ours), len(made)]))
"""
# The supervisor runs with its own files only, and without `site` (templates/slurm).
LATER = """
import importlib, json, sys
import safelaunch.loop
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] != "safelaunch")))
"""


def run(code: str, *words: str) -> list[Any]:
    """What a Python of its own prints, as JSON."""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def imported_later() -> Iterator[str]:
    """What the supervisor imports inside of functions."""
    for path in (*sorted((SOURCE / "supervisor").rglob("*.py")), SOURCE / "supervisor" / "io" / "world.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.col_offset and node.module:
                name = f"{node.module}.{node.names[0].name}"
                is_module = (SOURCE.parent / name.replace(".", "/")).with_suffix(".py").exists()
                yield name if is_module else node.module


def test_no_program_imports_more_at_its_start_than_it_did() -> None:
    found = {name: run(COUNT, name) for name in MOST}
    assert {name: counts for name, counts in found.items()
            if any(count > most for count, most in zip(counts, MOST[name], strict=True))} == {}


def test_a_supervisor_has_loaded_pythons_own_files_before_it_needs_more_of_its_own() -> None:
    """Its own lie on the node's disk, Python's perhaps in a folder that freezes."""
    names = sorted(set(imported_later()))
    assert "safelaunch.why.io.diagnosis" in names
    assert run(LATER, *names) == []
