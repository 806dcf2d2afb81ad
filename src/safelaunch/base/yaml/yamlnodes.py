"""What a document is made of before it means anything: scalars, lists and mappings that know where they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Union

DEPTH_MAX = 32
SURROGATE = "[\ud800-\udfff]"

Value = Union[None, bool, int, float, str]  # noqa: UP007 (an alias at run time)


class Origin(NamedTuple):
    """Where a value came from; line and column are 1-based, 0 where there are none."""

    layer: str  # default | site | user | file | command line
    file: str
    line: int
    column: int


DEFAULT = Origin("default", "", 0, 0)


class Scalar(NamedTuple):
    """One value, and the text it was written as: an account `0123` must reach sbatch as "0123", not as 123."""

    value: Value
    text: str
    plain: bool  # without quotes, so that it may mean a number
    origin: Origin


class ListNode(NamedTuple):
    """A list of nodes."""

    items: tuple[Node, ...]
    origin: Origin


class MappingNode(NamedTuple):
    """Keys, their nodes, and where each key itself stands (for unknown keys)."""

    entries: Mapping[str, Node]
    origin: Origin
    key_origins: Mapping[str, Origin] = MappingProxyType({})


Node = Union[Scalar, ListNode, MappingNode]  # noqa: UP007 (an alias at run time)

# YAML 1.2.2, section 10.3.2 "Tag Resolution": the core schema, and nothing of YAML 1.1. There `on` is a boolean,
# `12:30:00` the number 45000 and `1_000` the number 1000. Each has broken somebody's job.
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NUMBER = (
    r"(?P<int>[-+]?[0-9]+)|0o(?P<oct>[0-7]+)|0x(?P<hex>[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<inf>[-+]?\.(?:inf|Inf|INF))|(?P<nan>\.(?:nan|NaN|NAN))"
)
# Longer ones are text: int() of 5000 digits raises, and no setting has more than 64 bits.
_NUMBER_MAX_CHARS = 40


def read_plain(text: str) -> Value:
    """The value that an unquoted YAML 1.2 scalar means."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] not in "+-.0123456789" or len(text) > _NUMBER_MAX_CHARS:
        return text
    # Most texts and numbers need no pattern, which takes long to compile.
    if text[-1] not in ".0123456789" and not text.startswith(("0x", ".", "+.", "-.")):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    found = re.fullmatch(_NUMBER, text)
    if found is None:
        return text
    kind, digits = found.lastgroup, found[found.lastgroup or 0]
    if kind == "int":
        return int(digits)
    if kind in ("oct", "hex"):
        return int(digits, 8 if kind == "oct" else 16)
    return float(digits if kind == "float" else digits.lower().replace(".", ""))


def plain(text: str, origin: Origin) -> Scalar:
    """A scalar written without quotes."""
    return Scalar(read_plain(text), text, True, origin)


def quoted(text: str, origin: Origin) -> Scalar:
    """A scalar that is text whatever it looks like."""
    return Scalar(text, text, False, origin)


def is_null(node: Node) -> bool:
    """True for a value that takes back what a lower layer said."""
    return isinstance(node, Scalar) and node.value is None


def show(node: Node) -> str:
    """A node as an error message names it: `"four"`, `4`, `a list`."""
    if isinstance(node, ListNode):
        return "a list"
    if isinstance(node, MappingNode):
        return "a mapping"
    if node.value is None:
        return "nothing"
    text = node.text if len(node.text) <= 60 else node.text[:57] + "..."
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f'"{shown}"' if isinstance(node.value, str) else shown


def with_entries(node: MappingNode, entries: Mapping[str, Node]) -> MappingNode:
    """The same mapping with other entries."""
    return node._replace(entries=entries)
