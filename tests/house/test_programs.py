"""Programs that tests hold as texts, which neither mypy nor an import of the test sees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module

from tests.house.source import ROOT

TESTS = ROOT / "tests"
IMPORT = re.compile(r"(?:^ *|; *)from (safelaunch[\w.]*) import ([\w, ]+)(?=$|;)", re.MULTILINE)
STATEMENT = re.compile(r"^(?:@|(?:async )?def |class |\w[^\n]*=)", re.MULTILINE)   # the first one behind the imports


def test_programs_in_texts_import_what_is_there() -> None:
    found = [*imports_in_texts()]
    assert len(found) > 5
    assert [one for one in found if not is_there(*one[1:])] == []


def imports_in_texts() -> Iterator[tuple[str, str, str]]:
    """(file, module, name) of each import from the package within a text."""
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text()
        begun = STATEMENT.search(text)
        if begun is None or not IMPORT.search(text, begun.start()):   # most files: not worth a parse
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for match in IMPORT.finditer(node.value):
                    for name in match[2].split(","):
                        yield path.name, match[1], name.split(" as ")[0].strip()


def is_there(module: str, name: str) -> bool:
    module = module.replace("safelaunch_callbacks", "safelaunch.callbacks")   # the name where it is installed alone
    try:
        return hasattr(import_module(module), name) or bool(import_module(f"{module}.{name}"))
    except ModuleNotFoundError:
        return False
