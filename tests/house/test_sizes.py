"""A file and a function can be read at once, and a class name means one thing."""

from __future__ import annotations

import ast

from tests.house.source import modules

MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 50


def test_every_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for module in modules():
        for node in module.all(ast.ClassDef):
            homes.setdefault(node.name, []).append(module.name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_no_file_and_no_function_is_too_long_to_be_read_at_once() -> None:
    long_files = {module.path: lines for module in modules() if (lines := module.text.count("\n")) > MOST_LINES}
    functions = ((module.name, node) for module in modules() for node in module.functions())
    long_functions = {f"{name}.{node.name}": lines for name, node in functions
                      if (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION}
    assert (long_files, long_functions) == ({}, {})
