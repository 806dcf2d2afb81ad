"""As much of JSON Schema (draft 2020-12) as the schema of train.yaml uses; a KeyError for any word beside."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from safelaunch.base.yaml.yamlnodes import ListNode, MappingNode, Node

Schema = dict[str, Any]
_ANNOTATIONS = {"$schema", "title", "description", "default"}


def plain(node: Node) -> Any:
    """The JSON value that a node of YAML means."""
    if isinstance(node, MappingNode):
        return {key: plain(value) for key, value in node.entries.items()}
    return [plain(item) for item in node.items] if isinstance(node, ListNode) else node.value


def accepts(schema: Schema, value: Any) -> bool:
    """Whether the schema takes this JSON value."""
    return all(_RULES[word](given, value, schema) for word, given in schema.items() if word not in _ANNOTATIONS)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_type(name: str, value: Any) -> bool:
    if name in ("integer", "number"):
        return _is_number(value) and (name == "number" or value % 1 == 0)
    types = {"null": type(None), "boolean": bool, "string": str, "array": list, "object": dict}
    return isinstance(value, types[name])


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _additional_properties(given: Schema | bool, value: Any, schema: Schema) -> bool:
    named = schema.get("properties", {})
    others = [one for name, one in value.items() if name not in named] if isinstance(value, dict) else []
    return all(accepts(given, one) for one in others) if isinstance(given, dict) else given or not others


_RULES: dict[str, Callable[[Any, Any, Schema], bool]] = {
    "type": lambda given, value, _: any(_is_type(one, value) for one in ([given] if isinstance(given, str) else given)),
    "const": lambda given, value, _: _is_same(given, value),
    "enum": lambda given, value, _: any(_is_same(one, value) for one in given),
    "anyOf": lambda given, value, _: any(accepts(one, value) for one in given),
    "not": lambda given, value, _: not accepts(given, value),
    "minimum": lambda given, value, _: not _is_number(value) or value >= given,
    "maximum": lambda given, value, _: not _is_number(value) or value <= given,
    "minLength": lambda given, value, _: not isinstance(value, str) or len(value) >= given,
    "pattern": lambda given, value, _: not isinstance(value, str) or re.search(given, value) is not None,
    "items": lambda given, value, _: not isinstance(value, list) or all(accepts(given, one) for one in value),
    "minItems": lambda given, value, _: not isinstance(value, list) or len(value) >= given,
    "minProperties": lambda given, value, _: not isinstance(value, dict) or len(value) >= given,
    "required": lambda given, value, _: not isinstance(value, dict) or set(given) <= set(value),
    "properties": lambda given, value, _: not isinstance(value, dict) or all(
        accepts(given[name], one) for name, one in value.items() if name in given),
    "propertyNames": lambda given, value, _: not isinstance(value, dict) or all(accepts(given, name) for name in value),
    "additionalProperties": _additional_properties,
}
