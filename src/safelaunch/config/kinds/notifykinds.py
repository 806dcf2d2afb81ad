"""The kinds of value below notify: whom to tell, and a program."""

from __future__ import annotations

from typing import ClassVar

from safelaunch.base.secretmask import mask
from safelaunch.base.yaml.yamlnodes import ListNode, Node
from safelaunch.config.kinds.kinds import REFERENCE, Schema, Text, WrongValue, expected
from safelaunch.notify import targets


class Targets:
    """A list of notify.targets."""

    schema: ClassVar[Schema] = {
        "type": "array", "items": {"anyOf": [{"type": "string", "pattern": f"^({targets.PATTERN})$"}, REFERENCE]}}

    def read(self, node: Node) -> list[str]:
        """The entries as written. A wrong one is not repeated in the error: it may be a secret."""
        if not isinstance(node, ListNode):
            raise WrongValue("expected a list, such as [env:SLACK_URL, mailto:me@example.org]")
        found = []
        for number, item in enumerate(node.items, 1):
            text = Text().read(item)
            if fault := targets.why_not(text):
                raise WrongValue(f"entry {number}: {fault}")
            found.append(text)
        return found


class Program:
    """A program and its arguments; every user of a node reads these in ps."""

    schema: ClassVar[Schema] = {"type": "array", "items": {"anyOf": [{"type": ["string", "number"]}, REFERENCE]}}

    def read(self, node: Node) -> list[str]:
        """The words."""
        if not isinstance(node, ListNode):
            raise expected("a list of a program and its arguments, such as [/path/prog, arg]", node)
        words = [Text(may_be_empty=True).read(item) for item in node.items]
        if words and not words[0].startswith("/"):
            raise WrongValue(f"expected the full path of a program first, got {words[0]!r}")
        for number, word in enumerate(words, 1):
            if mask(word) != word:
                raise WrongValue(f"word {number} looks like a secret, and every user of a node reads command lines: "
                                 "let the program read it from a file")
        return words
