"""A question writes nothing: what is named `is_ has_ was_ may_ can_ are_` returns a bool and changes nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.house.source import CHANGING, Function, trees

QUESTION = ("is_", "has_", "was_", "may_", "can_", "are_")


class Home(NamedTuple):
    """Where a function stands: its module and its class ("" = none)."""

    module: str
    owner: str
    name: str


def functions(trees: Mapping[str, ast.Module]) -> dict[Home, list[Function]]:
    """All functions, those inside of functions included."""
    found: dict[Home, list[Function]] = {}
    for module, tree in trees.items():
        owned = {id(node): made.name for made in ast.walk(tree) if isinstance(made, ast.ClassDef) for node in made.body}
        for node in ast.walk(tree):
            if isinstance(node, Function):
                found.setdefault(Home(module, owned.get(id(node), ""), node.name), []).append(node)
    return found


def imported(tree: ast.Module) -> dict[str, str]:
    """Name in a module → the dotted name that it was imported from."""
    return {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) for alias in node.names}


def root(node: ast.AST) -> str:
    """`a` of `a.b[c].d`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def parameters(function: Function) -> set[str]:
    """`self` included."""
    given = function.args
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if one}


def assigns(function: Function) -> bool:
    """Whether an attribute or item of a parameter is assigned or deleted, or a set, list or dict of it is changed."""
    mine = parameters(function)
    return any(root(node) in mine and (
        not isinstance(node.ctx, ast.Load) or (isinstance(node, ast.Attribute) and node.attr in CHANGING))
        for node in ast.walk(function) if isinstance(node, ast.Attribute | ast.Subscript))


def called(home: Home, function: Function, names: Mapping[str, str], methods: Mapping[str, list[Home]]
           ) -> Iterator[list[Home]]:
    """For each call of a parameter's method, or with a parameter: the functions that it may be."""
    mine = parameters(function)
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        to, is_given = call.func, any(root(given) in mine for given in call.args)
        if isinstance(to, ast.Attribute) and isinstance(to.value, ast.Name) and to.value.id == "self":
            yield [Home(home.module, home.owner, to.attr)]
        elif isinstance(to, ast.Attribute) and root(to) in mine:
            yield methods.get(to.attr, [])
        elif is_given and isinstance(to, ast.Attribute) and root(to) in names:
            yield [Home(names[root(to)], "", to.attr)]
        elif is_given and isinstance(to, ast.Name):
            module, _, name = names.get(to.id, f"{home.module}.{to.id}").rpartition(".")
            yield [Home(module, "", name)]


def writers(trees: Mapping[str, ast.Module], made: Mapping[Home, list[Function]]) -> set[Home]:
    """Functions that change what they were given, by themselves or by a call. Of an object whose class the tree does
    not show, a method counts if all methods of its name do.
    """
    methods: dict[str, list[Home]] = {}
    for home in made:
        methods.setdefault(home.name, []).append(home)
    found = {home for home, nodes in made.items() if home.name != "__init__" and any(map(assigns, nodes))}
    names = {module: imported(tree) for module, tree in trees.items()}
    calls = {home: [to for node in nodes for to in called(home, node, names[home.module], methods) if to]
             for home, nodes in made.items() if home.name != "__init__"}
    while more := {home for home, tos in calls.items() if any(map(found.issuperset, tos))} - found:
        found |= more
    return found


def wrong_questions(trees: Mapping[str, ast.Module]) -> list[str]:
    """Functions named like questions that write, or that return no bool."""
    made, wrong = functions(trees), []
    writing = writers(trees, made)
    for home, nodes in made.items():
        if home.name.lstrip("_").startswith(QUESTION):
            returned = {ast.unparse(node.returns or ast.Constant(None)).partition("[")[0] for node in nodes}
            wrong += [f"{'.'.join(home)} writes"] if home in writing else []
            wrong += [f"{'.'.join(home)} returns no bool"] if not returned <= {"bool", "TypeGuard", "TypeIs"} else []
    return wrong


def test_a_question_writes_nothing_and_returns_a_bool() -> None:
    assert wrong_questions(trees()) == [], "name it for what it does: mark_…, note_…, take_…, check_…"


def test_each_way_to_write_in_a_question_is_found() -> None:
    texts = {
        "a": "class A:\n def is_set(self) -> bool: self.x = 1\n def has_item(self) -> bool: self.x[0] = 1\n"
             " def was_added(self) -> bool: self.x.add(1)\n def is_none(self): return True\n"
             " def are_all(self) -> bool: return self.note()\n def note(self): del self.x\n"
             " def is_fine(self) -> bool: return self.y.get(1)\n def is_one(self) -> TypeGuard[int]: return self.y",
        "b": "from a import A\nimport c\ndef can_go(one: A) -> bool: one.note()\ndef may_go(one) -> bool: act(one)\n"
             "def act(one): one.x = 1\ndef is_small(one) -> bool:\n x = []\n x.append(one)\n x[0] = 1\n return not x",
        "c": "from x import b\nfrom b import act as do\ndef _is_done(one) -> bool: return do(one.part)",
    }
    assert wrong_questions({name: ast.parse(text) for name, text in texts.items()}) == [
        "a.A.is_set writes", "a.A.has_item writes", "a.A.was_added writes", "a.A.is_none returns no bool",
        "a.A.are_all writes", "b..can_go writes", "b..may_go writes", "c.._is_done writes"]
