"""The table of keys ▸ JSON Schema (draft 2020-12), for editors.

A schema cannot know what ${VAR} will be, whether a regular expression is one, or which keys need each other: that is
for the check (resolve.py). A test holds both to the same answers.
"""

from __future__ import annotations

from safelaunch.base.yaml.yamlnodes import read_plain
from safelaunch.config.keys import KEYS, OPEN_SECTIONS, Key
from safelaunch.config.kinds.kinds import REFERENCE, Schema
from safelaunch.slurm.sbatchoptions import OPTIONS, REFUSED

_SCALAR = ["string", "number", "boolean", "null"]


def train_schema() -> Schema:
    """The JSON Schema of train.yaml."""
    sections: dict[str, Schema] = {}
    for path, key in KEYS.items():
        section, _, name = path.rpartition(".")
        sections.setdefault(section, {})[name] = _key_schema(key)
    top = sections.pop("")
    for section, properties in sections.items():
        top[section] = {"type": ["object", "null"], "properties": properties, "additionalProperties": False}
    variables = {"propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}, "additionalProperties": {"type": _SCALAR}}
    for section, schema in {"env": variables, "slurm": _slurm_schema()}.items():
        top[section] = {"type": ["object", "null"], "description": OPEN_SECTIONS[section], **schema}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "train.yaml of safelaunch",
        "type": "object", "properties": top,
        "anyOf": [{"required": ["command"]}, {"required": ["script"]}], "additionalProperties": False,
    }  # fmt: skip


def _key_schema(key: Key) -> Schema:
    """What one key takes; null goes back to the default."""
    kind = key.kind.schema
    reference = [] if kind.get("type") in ("array", "object") else [REFERENCE]
    schema: Schema = {"description": key.doc, "anyOf": [kind, *reference, {"type": "null"}]}
    if isinstance(key.default, tuple):
        schema["default"] = list(key.default)
    elif key.default is not None:
        schema["default"] = read_plain(key.default) if key.default else ""
    return schema


def _slurm_schema() -> Schema:
    """sbatch's options in both spellings; an unknown one may be of a newer Slurm."""
    both = {word: option for name, option in OPTIONS.items() for word in (name, name.replace("-", "_"))}
    refused = [word for word in both if word.replace("_", "-") in REFUSED]
    one, some = {"type": _SCALAR}, {"type": ["array", *_SCALAR], "items": {"type": ["string", "number"]}}
    options = {word: some if option.is_list else one for word, option in both.items() if word not in refused}
    return {"properties": options, "propertyNames": {"not": {"enum": refused}}}
