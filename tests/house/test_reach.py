"""How far the functions of the supervisor reach: most are handed the parts that they use, and not all of the leader."""

from __future__ import annotations

import ast

from tests.house.source import modules

MOST_WITH_ALL = 28   # the loop, the births, and courses that end in each other
MOST_PARAMETERS = 8


def test_functions_take_the_parts_that_they_use_and_not_all_of_the_leader() -> None:
    """Who holds `lead` can read and change each of its parts, and nobody can tell which he does."""
    found = [f"{module.path}:{node.lineno} {node.name}" for module in modules("supervisor")
             if not module.path.startswith(("supervisor/io/", "supervisor/state/"))
             for node in module.functions()
             if any(one.arg == "lead" or (one.annotation is not None and ast.unparse(one.annotation) == "Leader")
                    for one in node.args.args)]
    assert len(found) <= MOST_WITH_ALL, f"{len(found)}: {found}"


def test_no_function_takes_so_many_parts_that_a_value_of_its_subject_is_missing() -> None:
    found = {f"{module.path}:{node.name}": len(node.args.args) for module in modules("supervisor")
             if not module.path.startswith("supervisor/io/") for node in module.functions()
             if len(node.args.args) > MOST_PARAMETERS}
    assert not found
