"""Whether a text is a script, and which one a train.yaml names: all that a config without one needs to know of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from safelaunch.base.yaml.yamlnodes import MappingNode, Scalar
from safelaunch.base.yaml.yamltext import parse_document
from safelaunch.config.values import expand

STDIN = "stdin"   # the name of a script from standard input


def is_script(text: str) -> bool:
    """Whether it is a script, as sbatch tells: by its first two characters."""
    return text.startswith("#!")


def why_no_script(text: str) -> str:
    """Why sbatch would not take it, of a text that is not is_script."""
    if text.startswith("\ufeff#!"):
        return ("begins with a byte order mark, an invisible character before #!, and sbatch takes no such script; "
                "sed -i '1s/^\\xEF\\xBB\\xBF//' FILE removes it")
    return "does not begin with #!, and sbatch takes no such script; write #!/bin/bash as its first line"


def script_path(text: str, file: str, environ: Mapping[str, str]) -> str | None:
    """The path that `script:` of a train.yaml names, ${VAR} filled in; None where it names no sound one."""
    if "script" not in text or not re.search(r"\bscript\b", text):
        return None
    tree, _ = parse_document(text, layer="file", file=file)
    node = tree.entries.get("script") if tree is not None else None
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return None
    filled, faults = expand(MappingNode({"script": node}, node.origin), environ)
    node = filled.entries["script"]
    return node.text if isinstance(node, Scalar) and node.text and not faults else None
