"""Texts of a config that mean something else: durations, and `${VAR}`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from safelaunch.base.yaml.yamlnodes import (
    DEFAULT,
    ListNode,
    MappingNode,
    Node,
    Scalar,
    read_plain,
    show,
    with_entries,
)
from safelaunch.errors import ParseError, Problem

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SHOWN_S = (("d", 86400), ("h", 3600), ("m", 60))
_PART = r"([0-9]{1,40}(?:\.[0-9]{1,40})?)(ms|[smhdw])"
# For the JSON Schema: a number in quotes is a duration too.
DURATION_PATTERN = rf"({_PART})+|[0-9]+(\.[0-9]+)?"
# A year: far above any Slurm time limit, far below what overflows a sleep.
DURATION_MAX_S = 366 * 86400.0

# The user's own shell code: bash expands it, on the nodes.
NEVER_EXPANDED = frozenset(("command", "setup"))
# A text doubled by ${x}${x} some 30 times over fills the memory (it did, in a test); a line of env has 128 KiB.
_EXPANDED_MAX_CHARS = 1 << 16
_MOST_STEPS = 100   # each is three calls deep, and Python ends at a thousand

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\})?")


def parse_duration_s(text: str) -> float:
    """Seconds in `90`, `90s`, `15m`, `1h30m`, `7d`; raises ParseError on any other form.

    `15:00` is refused: Slurm reads it as minutes and seconds, people as hours and minutes.
    """
    number = read_plain(text)
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        duration_s = float(number)
    elif parts := _duration_parts(text):
        duration_s = sum(float(count) * _UNIT_S[unit] for count, unit in parts)
    else:
        raise ParseError("expected a duration such as 90s, 15m, 1h30m or 7d")
    if not 0 <= duration_s <= DURATION_MAX_S:
        raise ParseError(f"expected a duration from 0 to {DURATION_MAX_S / 86400:.0f}d")
    return duration_s


def render_duration(duration_s: float) -> str:
    """A whole number of seconds in the largest unit that fits, such as "15m"; seconds as a number else."""
    whole = int(duration_s)
    if whole != duration_s:
        return repr(duration_s)
    unit, size_s = next(((unit, size_s) for unit, size_s in _SHOWN_S if whole and whole % size_s == 0), ("s", 1))
    return f"{whole // size_s}{unit}"


def _duration_parts(text: str) -> list[tuple[str, str]]:
    """`1h30m` → [("1", "h"), ("30", "m")]; empty if there is anything else in the text."""
    if text[:-1].isdigit() and text.isascii() and text[-1] in _UNIT_S and len(text) <= 40:
        return [(text[:-1], text[-1])]   # most are like 90s, and the pattern takes 0.5 ms to compile
    parts: list[tuple[str, str]] = re.findall(_PART, text) if len(text) <= 40 else []
    return parts if "".join(map("".join, parts)) == text else []


def expand(tree: MappingNode, environ: Mapping[str, str]) -> tuple[MappingNode, list[Problem]]:
    """The tree with every `${NAME}` and `${NAME:-default}` replaced, and the problems of those that cannot be."""
    expansion = _Expansion(tree, environ)
    return expansion.mapping(tree, ""), expansion.problems


class _Unresolved(Exception):
    """A reference that leads nowhere."""


class _Expansion:
    """One pass over one tree. Each text is expanded once: what a variable holds is never expanded again."""

    def __init__(self, tree: MappingNode, environ: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._tree = tree
        self._environ = environ
        self._done: dict[str, str] = {}
        self._open: list[str] = []

    def mapping(self, node: MappingNode, path: str) -> MappingNode:
        """The same mapping, its values expanded."""
        changed = {key: new for key, value in node.entries.items()
                   if (new := self._node(value, _join(path, key))) is not value}
        return with_entries(node, {**node.entries, **changed}) if changed else node

    def _node(self, node: Node, path: str) -> Node:
        if isinstance(node, MappingNode):
            return self.mapping(node, path)
        if isinstance(node, ListNode):
            items = (self._node(item, f"{path}[{i}]") for i, item in enumerate(node.items))
            return ListNode(tuple(items), node.origin)
        if path in NEVER_EXPANDED or "${" not in node.text:
            return node
        try:
            return _retyped(node, self._text(node, path))
        except _Unresolved as fault:
            if node.origin == DEFAULT:  # run_dir's `runs/${name}` is not what is wrong when name is
                return node
            self.problems.append(Problem(node.origin.file, node.origin.line, node.origin.column, path, str(fault)))
            return node

    def _text(self, node: Scalar, path: str) -> str:
        if path in NEVER_EXPANDED:
            return node.text
        if path not in self._done:
            if path in self._open:
                raise _Unresolved("refers to itself: " + " → ".join([*self._open[self._open.index(path) :], path]))
            if len(self._open) >= _MOST_STEPS:
                raise _Unresolved(f"goes through more than {_MOST_STEPS} other values")
            self._open.append(path)
            try:
                self._done[path] = self._replaced(node.text)
            finally:
                self._open.pop()
        return self._done[path]

    def _replaced(self, text: str) -> str:
        """The text with its references replaced; stops as soon as it has grown too long, and not afterwards."""
        parts: list[str] = []
        size, end = 0, 0
        for found in _REFERENCE.finditer(text):
            parts += [text[end : found.start()], self._replacement(found)]
            size += len(parts[-1])
            end = found.end()
            if size > _EXPANDED_MAX_CHARS:
                raise _Unresolved(f"grows beyond {_EXPANDED_MAX_CHARS} characters")
        return "".join([*parts, text[end:]])

    def _replacement(self, found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        if not found[2]:
            raise _Unresolved("${ without a closing }; $${ is ${ itself")
        name, has_default, default = found[1].partition(":-")
        if not name.isascii() or not re.sub("[.-]", "_", name).isidentifier() or "${" in default:
            raise _Unresolved(f"{found[0]}: expected ${{NAME}} or ${{NAME:-default}}; $${{ is ${{ itself")
        return self._value(name, default if has_default else None)

    def _value(self, name: str, default: str | None) -> str:
        path = _config_path(name)
        node = _at(self._tree, path)
        if isinstance(node, Scalar) and node.value is not None:
            return self._text(node, path)
        if isinstance(node, (ListNode, MappingNode)):
            raise _Unresolved(f"${{{name}}} is {show(node)}, not one value")
        value = self._environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise _Unresolved(f"${{{name}}} is not set: no config key, no variable; ${{{name}:-x}} gives it a default")
        return value


def _retyped(node: Scalar, text: str) -> Scalar:
    """`nodes: ${N}` may become a number, as if it had been written; a quoted text stays text, and `on` no boolean."""
    number = read_plain(text) if node.plain else text
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    return Scalar(number if is_number else text, text, node.plain, node.origin)


def _config_path(name: str) -> str:
    """`slurm.gpus_per_node` → `slurm.gpus-per-node`, the spelling that layers are merged under."""
    return name.replace("_", "-") if name.startswith("slurm.") else name


def _at(tree: MappingNode, path: str) -> Node | None:
    node: Node | None = tree
    for part in path.split("."):
        node = node.entries.get(part) if isinstance(node, MappingNode) else None
    return node


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
