"""Every regular expression of the package: those that modules hold, and those that stand in calls of `re`."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import safelaunch
from safelaunch.why.findings import Rule

ROOT = Path(safelaunch.__file__).parent
ANCHORED = {"match", "fullmatch"}
METHODS = {"search", "findall", "finditer", "sub", "subn", "split"} | ANCHORED
DEEPEST = 4   # tables of rows of patterns


class Use(NamedTuple):
    """A pattern, where it stands, and how it is tried: by `search`, or at the start only."""

    where: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


def all_patterns() -> list[Use]:
    """Each pattern once, under the first module that holds it."""
    found: dict[tuple[re.Pattern[Any], frozenset[str]], Use] = {}
    for one in (*_held(), *_called()):
        found.setdefault((one.pattern, one.methods), one)
    return list(found.values())


def _held() -> Iterator[Use]:
    # Callbacks need a framework, and the programs run.
    for info in pkgutil.walk_packages([str(ROOT)], "safelaunch."):
        is_program = info.name.endswith(("__main__", "standin.main", "warm.parked"))
        if is_program or info.name.startswith("safelaunch.callbacks."):
            continue
        module = import_module(info.name)
        text = Path(str(module.__file__)).read_text()
        imported = _imported(text)
        for name, value in list(vars(module).items()):
            where = imported.get(name, f"{info.name}.{name}")
            if getattr(getattr(value, "__wrapped__", None), "__name__", "") == "<lambda>":   # made when first wanted
                value = value()
            if isinstance(value, (str, bytes)) and re.search(rf"\bre\.\w+\({re.escape(name)}\b", text):
                yield Use(where, re.compile(value, re.MULTILINE), frozenset(
                    re.findall(rf"\bre\.(\w+)\({re.escape(name)}\b", text)))
            for pattern in _within(value, DEEPEST):
                used = frozenset(METHODS & set(re.findall(rf"\b{re.escape(name)}\.(\w+)\(", text)))
                yield Use(where, pattern, used or frozenset(("search",)))


def _imported(text: str) -> dict[str, str]:
    """Where the names come from that a module imports."""
    return {one.asname or one.name: f"{node.module}.{one.name}" for node in ast.parse(text).body
            if isinstance(node, ast.ImportFrom) for one in node.names}


def _within(value: object, depth: int) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (str, bytes)) and depth < DEEPEST and _reads_like_one(value):
        yield re.compile(value, re.MULTILINE)
    elif depth and isinstance(value, (tuple, list, set, frozenset)):
        for one in value:
            yield from _within(one, depth - 1)
    elif depth and isinstance(value, dict):
        for one in value.values():
            yield from _within(one, depth - 1)
    elif depth and is_dataclass(value) and not isinstance(value, (type, Rule)):   # rules: test_rule_costs.py
        for field in fields(value):
            yield from _within(getattr(value, field.name, None), depth - 1)


def _reads_like_one(value: str | bytes) -> bool:
    """Of a row that is compiled where it is used."""
    text = value if isinstance(value, str) else value.decode("latin-1")
    if not re.search(r"\\[dwsSb]|\.[*+{]|\][*+{]", text):
        return False
    try:
        return bool(re.compile(text))
    except re.error:
        return False


def _called() -> Iterator[Use]:
    """Of `re.search("…", text)` and the like, whose pattern is a literal."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if not re.search(r"\bre\.\w+\(", text):   # all files take seconds, in each worker that collects
            continue
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
                    and isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
                    and node.func.attr in METHODS):
                continue
            try:
                pattern = ast.literal_eval(node.args[0])
            except ValueError:
                continue   # held under a name, or made of other values
            if isinstance(pattern, (str, bytes)):
                yield Use(f"{path.relative_to(ROOT)}:{node.lineno}", re.compile(pattern), frozenset((node.func.attr,)))
