"""What is claimed, announced and noted of an act is written in one place."""

from __future__ import annotations

import ast

from tests.house.source import modules, text_of


def test_intents_and_outcomes_are_written_in_one_place_only() -> None:
    writers = {module.path for module in modules() for node in module.all(ast.Call)
               if node.args and text_of(node.args[0]) in ("intent", "outcome")
               and ast.unparse(node.func).lower().endswith("event")}
    assert writers == {"run/acts.py"}


def test_a_claim_is_waited_for_in_one_place_only() -> None:
    loops = [module.path for module in modules() for node in module.all(ast.While)
             if isinstance(node.test, ast.Compare) and "claim(" in ast.unparse(node.test)]
    assert loops == ["run/acts.py"]
