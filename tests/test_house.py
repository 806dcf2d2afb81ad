"""The shape of the source, by its syntax trees: what no linter in use can check."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 50


def modules() -> dict[str, ast.Module]:
    """Dotted name → syntax tree, of every module of the package."""
    found = {}
    for path in sorted((SOURCE / "safelaunch").rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text())
    return found


def imports_of(tree: ast.AST, names: frozenset[str]) -> Iterator[str]:
    """Which of the names a module imports, also inside of functions, and for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in names or node.module in names:
                    yield full if full in names else node.module


def find_cycle(trees: Mapping[str, ast.Module]) -> list[str]:
    """Modules that import each other in a circle; [] = there is none."""
    names = frozenset(trees)
    sorter = TopologicalSorter({name: set(imports_of(tree, names)) - {name} for name, tree in trees.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert find_cycle(modules()) == []


def test_a_circle_hidden_in_a_function_is_found() -> None:
    texts = {"a": "import b", "b": "def f():\n    from c import x", "c": "import a.b\nimport a"}
    assert set(find_cycle({name: ast.parse(text) for name, text in texts.items()})) == {"a", "b", "c"}


def test_every_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_no_file_and_no_function_is_too_long_to_be_read_at_once() -> None:
    long_files = {str(path.relative_to(SOURCE)): lines for path in (SOURCE / "safelaunch").rglob("*.py")
                  if (lines := path.read_text().count("\n")) > MOST_LINES}
    functions = ((name, node) for name, tree in modules().items() for node in ast.walk(tree)
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    long_functions = {f"{name}.{node.name}": lines for name, node in functions
                      if (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION}
    assert (long_files, long_functions) == ({}, {})


def test_every_comment_on_the_simulation_names_a_scenario_that_exists() -> None:
    """`(simulated: test_found "name")`: a key of a table of that file, or a test's name with spaces."""
    known = {path.stem: scenarios_of(path) for path in (Path(__file__).parent / "simulation").glob("*.py")}
    wrong = []
    for path in sorted((SOURCE / "safelaunch").rglob("*.py")):
        text = re.sub(r"\s*\n\s*(# )?", " ", path.read_text())
        for at in re.finditer(r"\(simulated|simulated\)|found by simulation", text):
            named = re.match(r'\(simulated: (\w+) "([^"]+)"\)', text[at.start():])
            if named is None or named[2] not in known.get(named[1], ()):
                wrong.append(f"{path.name}: {text[at.start():][:100]}")
    assert wrong == []


def scenarios_of(path: Path) -> set[str]:
    """The names of a file's scenarios: string keys of its tables, and its tests."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    keys = {key.value for node in nodes if isinstance(node, ast.Dict) for key in node.keys
            if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return keys | {node.name.removeprefix("test_").replace("_", " ") for node in nodes
                   if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
