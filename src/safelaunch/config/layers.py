"""built-in defaults ▸ site file ▸ user file ▸ train.yaml ▸ command line: one tree, each value with its origin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from safelaunch.base.yaml.yamlnodes import DEFAULT, ListNode, MappingNode, Node, Origin, is_null, plain, quoted
from safelaunch.base.yaml.yamltext import parse_value
from safelaunch.config.keys import KEYS, OPEN_SECTIONS
from safelaunch.errors import Problem

COMMAND_LINE = Origin("command line", "command line", 0, 0)


def default_layer(name: str) -> MappingNode:
    """What the keys are when nobody writes them, as if it had been written."""
    layer: MappingNode = MappingNode({}, DEFAULT)
    for path, key in KEYS.items():
        node = default_node(name if path == "name" else key.default)
        layer = layer if node is None else put(layer, path, node)
    return put(layer, "slurm.nodes", plain("1", DEFAULT))


def default_node(default: str | tuple[str, ...] | None) -> Node | None:
    """A default as if it had been written; None where there is none."""
    if isinstance(default, tuple):
        return ListNode(tuple(quoted(item, DEFAULT) for item in default), DEFAULT)
    return None if default is None else plain(default, DEFAULT) if default else quoted("", DEFAULT)


def name_from_file(file: str) -> str:
    """A run's name made from its file's: the stem, with what a name may not hold as dashes."""
    stem = file.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip("._-")[:64] or "run"


def merge_layers(defaults: MappingNode, layers: Iterable[MappingNode]) -> MappingNode:
    """One tree: mappings merge key by key, everything else is replaced, and null goes back to the default."""
    merged = defaults
    for layer in layers:
        merged = _merge(merged, layer, defaults)
    return merged


def parse_overrides(overrides: Sequence[str]) -> tuple[list[MappingNode], list[Problem]]:
    """A layer for each `key=value` (the last one of a key counts), and what is wrong with the others."""
    layers = []
    problems: list[Problem] = []
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals or not re.fullmatch(r"[^\s.=]+(\.[^\s=]+)*", path):
            problems.append(Problem("command line", 0, 0, override[:80], "expected key=value, such as slurm.nodes=4"))
            continue
        node, faults = parse_value(text, layer="command line", file="command line")
        problems.extend(Problem(fault.file, 0, 0, path, fault.text) for fault in faults)
        if node is not None:
            layers.append(put(MappingNode({}, COMMAND_LINE), path, node))
    return layers, problems


def _merge(lower: MappingNode, upper: MappingNode, defaults: MappingNode | None) -> MappingNode:
    entries = dict(lower.entries)
    for key, node in upper.entries.items():
        default = defaults.entries.get(key) if defaults is not None else None
        if is_null(node):
            entries.pop(key, None)
            if default is not None:
                entries[key] = default
        elif isinstance(node, MappingNode):
            below = entries.get(key)
            below = below if isinstance(below, MappingNode) else MappingNode({}, node.origin)
            entries[key] = _merge(below, node, default if isinstance(default, MappingNode) else None)
        else:
            entries[key] = node
    return MappingNode(entries, upper.origin, {**lower.key_origins, **upper.key_origins})


def put(root: MappingNode, path: str, node: Node) -> MappingNode:
    """The mapping with one more leaf, at a dotted path. Keys of an open section (env, slurm) may hold dots."""
    key, _, rest = path.partition(".")
    if rest:
        below = root.entries.get(key)
        inner = below if isinstance(below, MappingNode) else MappingNode({}, root.origin)
        node = _put_leaf(inner, rest, node) if key in OPEN_SECTIONS else put(inner, rest, node)
    return _put_leaf(root, key, node)


def _put_leaf(root: MappingNode, key: str, node: Node) -> MappingNode:
    entries: Mapping[str, Node] = {**root.entries, key: node}
    return MappingNode(entries, root.origin, {**root.key_origins, key: root.origin})
