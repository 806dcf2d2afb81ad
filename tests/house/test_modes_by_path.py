"""No mode and no owner is changed by path."""

from __future__ import annotations

import ast

from tests.house.source import modules

BY_PATH = frozenset({"chmod", "chown", "copystat", "copymode", "copy2", "copytree"})
# A device node of a sandbox, in a folder of root's alone; to open it would need its driver.
BY_PATH_ALLOWED = {"safelaunch.sandbox.daemons": 1}


def changes_by_path(tree: ast.AST) -> list[str]:
    """Calls that give whatever bears a name a mode or an owner; os.fchmod and os.fchown do so for what is open."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls)
    of_shutil = [ast.unparse(node.func) for node in ast.walk(tree)
                 if isinstance(node, ast.Call) and ast.unparse(node.func) == "shutil.copy"]
    return [*(name for name in names if name in BY_PATH), *of_shutil]


def test_no_mode_and_no_owner_is_changed_by_path() -> None:
    """Whoever may write beside a file can put a link in its place: the change would be one of any file of ours."""
    words = (*BY_PATH, "shutil")   # a file without them, which most are, is not walked
    found = {module.name: len(calls) for module in modules() if any(word in module.text for word in words)
             if (calls := changes_by_path(module.tree))}
    assert found == BY_PATH_ALLOWED, "use modes.set_mode, os.fchmod, or durable.put(…, for_all=True)"


def test_each_way_to_change_a_mode_by_path_is_found() -> None:
    text = "path.chmod(0o644)\nos.chmod(path, 1)\nchown(path, 1, 1)\nshutil.copystat(a, b)\nshutil.copy(a, b)\nd.copy()"
    assert sorted(changes_by_path(ast.parse(text))) == ["chmod", "chmod", "chown", "copystat", "shutil.copy"]
    assert changes_by_path(ast.parse("os.fchmod(1, 0o600)\nos.fchown(1, 2, 3)\nos.lchown(a, 1, 1)")) == []
