"""The arguments of a user's own script, as a value of train.yaml."""

from __future__ import annotations

from typing import NamedTuple

from safelaunch.base.yaml.yamlnodes import ListNode, Node, Scalar
from safelaunch.config.kinds.kinds import Schema, expected, handed


class ArgumentList(NamedTuple):
    """A list of texts as they were written, empty ones and those of several lines, too."""

    @property
    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": ["string", "number", "boolean"]}}

    def read(self, node: Node) -> list[str]:
        """The list."""
        if not isinstance(node, ListNode):
            raise expected("a list, such as [config.yaml, 3]", node)
        if wrong := next((one for one in node.items if not isinstance(one, Scalar) or one.value is None), None):
            raise expected('text (an empty one is "")', wrong)
        return [handed(one.text) for one in node.items if isinstance(one, Scalar)]
