"""The kinds of value under `container:`."""

from __future__ import annotations

import re
from typing import ClassVar

from safelaunch.base.yaml.yamlnodes import MappingNode, Node, Scalar
from safelaunch.config.handed import BASHS_OWN
from safelaunch.config.kinds.kinds import REFERENCE, Schema, TextLines, WrongValue, expected, handed, read_line
from safelaunch.launch.containers import split_mount

_MOUNT = r"/[^:,]*(?::/[^:,]*(?::[a-zA-Z0-9_=,+-]+)?)?"


class Mounts(TextLines):
    """Folders of the node, each as SOURCE, SOURCE:TARGET or SOURCE:TARGET:OPTIONS."""

    @property
    def schema(self) -> Schema:
        item = {"type": "string", "pattern": f"^({_MOUNT})$"}
        return {"type": "array", "items": {"anyOf": [item, REFERENCE]}}

    def read(self, node: Node) -> list[str]:
        """The list, as written."""
        mounts = super().read(node)
        for mount in mounts:
            if re.fullmatch(_MOUNT, mount) is None:
                raise WrongValue(f'"{mount}": expected /source, /source:/target or /source:/target:ro, full paths '
                                 "without : and ,")
        if len({split_mount(mount)[1] for mount in mounts}) < len(mounts):
            raise WrongValue("two mounts have the same target")
        return mounts


class Variables:
    """Names of variables, each with its text."""

    schema: ClassVar[Schema] = {
        "type": "object", "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }

    def read(self, node: Node) -> dict[str, str]:
        """Name → text as written."""
        if not isinstance(node, MappingNode):
            raise expected("names and values, such as {HF_HOME: /data/hf}", node)
        return {name: self._value(name, value) for name, value in node.entries.items()}

    def _value(self, name: str, node: Node) -> str:
        if not (name.isascii() and name.isidentifier()) or name in BASHS_OWN or name.startswith("SAFELAUNCH_"):
            raise WrongValue(f"{name}: no variable that can be set")
        if not isinstance(node, Scalar) or node.value is None:
            raise WrongValue(f"{name}: {expected('text', node)}")
        return handed(read_line(node) if isinstance(node.value, str) else node.text, name)
