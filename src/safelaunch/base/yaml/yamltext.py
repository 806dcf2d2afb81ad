"""text ▸ nodes with places, by YAML's 1.2 core schema and nothing else; a program's JSON ▸ the same nodes.

What has no use in a config and has hurt in other tools is refused with its reason, here and in yamlreader. PyYAML is
imported only for a text that takes it: a program that submits by values has no time for it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from safelaunch.base.yaml.yamlnodes import (
    DEPTH_MAX,
    SURROGATE,
    ListNode,
    MappingNode,
    Node,
    Origin,
    Scalar,
    plain,
    quoted,
)
from safelaunch.errors import Problem

TEXT_MAX_BYTES = 1 << 20

# All but what YAML 1.2 section 5.1 allows in a file. Compiled only for a text that is not plainly printable: each
# pattern costs `safelaunch submit` up to a millisecond.
_FORBIDDEN = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


class _OnlyYaml(Exception):
    """JSON with a fault that the YAML reader has words for."""


def parse_document(text: str, *, layer: str, file: str) -> tuple[MappingNode | None, list[Problem]]:
    """The mapping that a text holds (None: unreadable), and every problem found on the way."""
    text = text.removeprefix("\ufeff")
    if fault := _forbidden_text(text, file):
        return None, [fault]
    from safelaunch.base.yaml.yamlreader import YamlReader

    reader = YamlReader(text, layer, file)
    node = reader.read()
    if node is None:
        return None, reader.problems
    if isinstance(node, MappingNode):
        return node, reader.problems
    fault = Problem(file, node.origin.line, node.origin.column, "", "expected `key: value` lines")
    return None, [*reader.problems, fault]


def parse_json(text: str, *, layer: str, file: str) -> tuple[MappingNode | None, list[Problem]]:
    """The same of a mapping that a program has written as JSON, which is YAML, too; without places."""
    place = Origin(layer, file, 0, 0)

    def number(written: str) -> Scalar:
        return plain(written, place)

    try:
        read = json.loads(text, object_pairs_hook=_once_each, parse_int=number, parse_float=number,
                          parse_constant=number)
        node = _node_of(read, place, 1)
    except (_OnlyYaml, ValueError, RecursionError):
        node = None
    if isinstance(node, MappingNode) and _forbidden_text(text, file) is None:
        return node, []
    tree, problems = parse_document(text, layer=layer, file=file)
    return tree, [Problem(one.file, 0, 0, one.key, one.text) for one in problems]


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    if len(found := dict(pairs)) < len(pairs):
        raise _OnlyYaml
    return found


def _node_of(value: Any, place: Origin, depth: int) -> Node:
    """A node of what json has read; its numbers are nodes already."""
    if depth > DEPTH_MAX:
        raise _OnlyYaml
    if isinstance(value, Scalar):
        return value
    if isinstance(value, dict):
        entries = {key: _node_of(item, place, depth + 1) for key, item in value.items()}
        return MappingNode(entries, place, dict.fromkeys(entries, place))
    if isinstance(value, list):
        return ListNode(tuple(_node_of(item, place, depth + 1) for item in value), place)
    return quoted(value, place) if isinstance(value, str) else plain(json.dumps(value), place)


def parse_value(text: str, *, layer: str, file: str) -> tuple[Node | None, list[Problem]]:
    """One value of a command line: text as it stands, or by its first sign a YAML list, mapping or quoted text."""
    place = Origin(layer, file, 0, 0)
    if not text.isprintable() and re.search(SURROGATE, text):
        return None, [Problem(file, 0, 0, "", "is not UTF-8 text")]
    if not text.startswith(("[", "{", '"', "'")):
        return plain(text, place), []
    from safelaunch.base.yaml.yamlreader import YamlReader

    reader = YamlReader(text, layer, file, placeless=True)
    return reader.read(), reader.problems


def _forbidden_text(text: str, file: str) -> Problem | None:
    if len(text.encode("utf-8", "surrogatepass")) > TEXT_MAX_BYTES:
        return Problem(file, 0, 0, "", f"larger than {TEXT_MAX_BYTES >> 20} MiB; a config is a page or two")
    if text.replace("\n", "").isprintable():
        return None
    bad = re.search(_FORBIDDEN, text)
    if bad is None:
        return None
    before = text[: bad.start()]
    line, column = before.count("\n") + 1, bad.start() - (before.rfind("\n") + 1) + 1
    return Problem(file, line, column, "", f"a character that no text file may hold (U+{ord(bad[0]):04X})")


