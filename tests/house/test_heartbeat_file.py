"""The file of the heartbeat is named by its module and by the node's, which imports nothing."""

from __future__ import annotations

import ast

from tests.house.source import modules


def test_only_its_module_and_the_node_name_the_file() -> None:
    found = {module.path for module in modules() for node in module.all(ast.Constant) if node.value == "pulse.json"}
    assert found == {"run/heartbeat.py", "node/guard/record.py", "node/guard/orphan.py"}
