"""YAML's events ▸ nodes.

PyYAML gives the parser's events only; its constructors (which can make objects, dates and YAML 1.1's numbers) are never
called. What has no use in a config and has hurt in other tools is refused with its reason. That is duplicate keys,
tags, merge keys, several documents, and aliases that grow without bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

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

# "Billion laughs" grows by aliases of aliases; the largest real config known here has fewer than 200 nodes.
NODES_MAX = 10_000

# libyaml in C where PyYAML was built with it: the same events, 10 times as fast.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# The parser's phrase → what a person can do about it. Phrases: libyaml and PyYAML's own scanner, which differ a little.
_PLAIN_WORDS = (
    ("mapping values are not allowed", 'a ":" that cannot stand here; put quotes around a text that holds ": "'),
    ("cannot start any token", "a tab, @, % or ` cannot start a value; indent by spaces, and quote such a text"),
    ("found a tab character", "a tab; indent by spaces"),
    ("could not find expected ':'", 'a key without ":", or a text that goes on at the wrong indentation'),
    ("sequence entries", "a list starts on a line of its own"),
    ("node content", "a value is missing, or starts with a sign that needs quotes"),
    ("block end", "the indentation does not fit the lines above, or a bracket or quote above is not closed"),
    ("unexpected end of stream", "the text ends inside a quote"),
    ("expected ',' or", 'a "," or the closing bracket is missing'),
    ("expected alphabetic or numeric", "a & or * must be followed by a name; quote a text that starts with one"),
    ("unknown escape", "no such escape in \"...\" quotes; write \\\\ for a backslash, or use '...' quotes"),
    ("invalid Unicode", "an escape that is no character"),
    ("did not find expected comment or line break", "after | or > the text starts on the next line"),
    ("incompatible YAML", "written for another YAML version"),
    ("document start", "text after the end of the value"),
    ("found undefined tag handle", "tags (!...) are not used here; quote a text that starts with !"),
)


class _Refused(Exception):
    """A fault that ends the reading of this text."""

    def __init__(self, mark: Any, text: str) -> None:
        super().__init__(text)
        self.mark = mark
        self.text = text


class YamlReader:
    """Builds nodes from events; the depth is bounded before Python's stack is."""

    def __init__(self, text: str, layer: str, file: str, *, placeless: bool = False) -> None:
        self.problems: list[Problem] = []
        self._text = text
        self._layer = layer
        self._file = file
        self._placeless = placeless
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._count = 0

    def read(self) -> Node | None:
        """The document's node, or None with the problem noted."""
        try:
            loader = _Loader(self._text)
            try:
                return self._document(self._events(loader))
            finally:
                loader.dispose()
        except _Refused as refused:
            self._note(refused.mark, "", refused.text)
        except yaml.MarkedYAMLError as error:
            self._note(error.problem_mark or error.context_mark, "", _in_plain_words(error, placeless=self._placeless))
        except yaml.YAMLError as error:
            self._note(None, "", f"not YAML: {error}")
        return None

    @staticmethod
    def _events(loader: Any) -> Iterator[Any]:
        while loader.check_event():
            yield loader.get_event()

    def _document(self, events: Iterator[Any]) -> Node:
        next(events)  # the stream's start
        event = next(events)
        if isinstance(event, yaml.StreamEndEvent):
            return MappingNode({}, self._origin(event.start_mark))
        node = self._node(next(events), events, depth=1)
        next(events)  # the document's end
        event = next(events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise _Refused(event.start_mark, "a second document (---); one file describes one run")
        if isinstance(node, Scalar) and node.value is None:
            return MappingNode({}, node.origin)
        return node

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise _Refused(event.start_mark, f"nested deeper than {DEPTH_MAX} levels")
        before = self._count
        self._grow(1, event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag is not None:
            raise _Refused(event.start_mark, "tags (!...) are not used here; quote a text that starts with !")
        if isinstance(event, yaml.ScalarEvent):
            node: Node = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._list(event, events, depth)
        else:
            node = self._mapping(event, events, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, self._count - before)
        return node

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            raise _Refused(event.start_mark, f"*{event.anchor}: no &{event.anchor} before it")
        node, size = self._anchors[event.anchor]
        self._grow(size - 1, event)
        return node

    def _grow(self, count: int, event: Any) -> None:
        self._count += count
        if self._count > NODES_MAX:
            raise _Refused(event.start_mark, f"more than {NODES_MAX} values, aliases expanded")

    def _scalar(self, event: Any) -> Scalar:
        origin = self._origin(event.start_mark)
        text = event.value
        if not text.isprintable() and re.search(SURROGATE, text):
            raise _Refused(event.start_mark, "not YAML: an escape that is no character")
        return plain(text, origin) if event.style is None or event.style == "" else quoted(text, origin)

    def _list(self, start: Any, events: Iterator[Any], depth: int) -> ListNode:
        items = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self._node(event, events, depth + 1))
        return ListNode(tuple(items), self._origin(start.start_mark))

    def _mapping(self, start: Any, events: Iterator[Any], depth: int) -> MappingNode:
        entries: dict[str, Node] = {}
        places: dict[str, Origin] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self._key(event, events, depth + 1)
            value = self._node(next(events), events, depth + 1)
            if key.text in entries:
                first = places[key.text].line
                self._note(event.start_mark, key.text, f"given twice; the first one is in line {first}")
                continue
            entries[key.text] = value
            places[key.text] = key.origin
        return MappingNode(entries, self._origin(start.start_mark), places)

    def _key(self, event: Any, events: Iterator[Any], depth: int) -> Scalar:
        key = self._node(event, events, depth)
        if not isinstance(key, Scalar) or key.value is None:
            raise _Refused(event.start_mark, "a key must be a word")
        if key.plain and key.text == "<<":
            raise _Refused(event.start_mark, "merge keys (<<) are not YAML 1.2; shared values go in a user file")
        return key

    def _origin(self, mark: Any) -> Origin:
        if self._placeless or mark is None:
            return Origin(self._layer, self._file, 0, 0)
        return Origin(self._layer, self._file, mark.line + 1, mark.column + 1)

    def _note(self, mark: Any, key: str, text: str) -> None:
        origin = self._origin(mark)
        self.problems.append(Problem(self._file, origin.line, origin.column, key, text))


def _in_plain_words(error: yaml.MarkedYAMLError, *, placeless: bool) -> str:
    """A parser's complaint as a person would put it; a bracket or quote left open is named by its line."""
    problem = error.problem or error.context or "unreadable"
    words = next((words for phrase, words in _PLAIN_WORDS if phrase in problem), problem)
    opened = error.context_mark
    if not placeless and opened is not None and re.search("flow sequence|flow mapping|quoted", error.context or ""):
        words += f" (opened in line {opened.line + 1}, column {opened.column + 1})"
    return f"not YAML: {words}"
