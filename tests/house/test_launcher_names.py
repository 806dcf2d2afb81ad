"""A launcher is a row of one table; few other files name one."""

from __future__ import annotations

import ast

from safelaunch.launch.launchers import LAUNCHERS
from tests.house.source import modules

# The table; the example that `safelaunch init` writes; the two of the node.
# innerlaunchers: launchers that people write into command:, most of which safelaunch does not start itself.
NAMING = {"launch/launchers.py", "config/starter.py", "config/shell/innerlaunchers.py", "node/proctable.py",
          "node/guard/processes.py"}


def test_a_launcher_that_starts_ranks_is_named_in_five_files_at_most() -> None:
    starters = {name for name, row in LAUNCHERS.items() if row.starts_ranks} - {"deepspeed"}   # also of checkpoints
    named = {*starters, *(name.encode() for name in starters)}
    found = {module.path for module in modules() if "why/rules" not in module.path for node in module.all(ast.Constant)
             if isinstance(node.value, (str, bytes)) and node.value in named}
    assert found == NAMING
