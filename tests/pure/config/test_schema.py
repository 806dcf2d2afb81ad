"""The JSON Schema, and the page that documents every key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from safelaunch.base.yaml.yamltext import parse_document
from safelaunch.config.keys import KEYS, OPEN_SECTIONS
from safelaunch.config.schema import train_schema
from safelaunch.slurm.sbatchoptions import OPTIONS, REFUSED
from tests.pure.config.json_schema import accepts, plain
from tests.tables import each

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "train-yaml.md").read_text(encoding="utf-8")
EXAMPLES = [
    *(file.read_text(encoding="utf-8") for file in sorted((ROOT / "examples").glob("*/train.yaml"))),
    *re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL),
]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return train_schema()


def test_the_schema_is_json_and_names_its_draft(schema: dict[str, Any]) -> None:
    assert json.loads(json.dumps(schema))["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@each("path", KEYS)
def test_every_key_is_in_the_schema_with_its_meaning(schema: dict[str, Any], path: str) -> None:
    section, _, name = path.rpartition(".")
    holder = schema["properties"][section] if section else schema
    assert holder["properties"][name]["description"] == KEYS[path].doc
    assert holder["additionalProperties"] is False


@each("path", KEYS)
def test_a_default_is_a_value_that_the_schema_takes(schema: dict[str, Any], path: str) -> None:
    section, _, name = path.rpartition(".")
    key = (schema["properties"][section] if section else schema)["properties"][name]
    assert ("default" in key) == (KEYS[path].default is not None)
    assert accepts(key, key.get("default"))


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_schema_takes_every_example(schema: dict[str, Any], text: str) -> None:
    tree, problems = parse_document(text, layer="file", file="train.yaml")
    assert tree is not None
    assert not problems
    assert accepts(schema, plain(tree))


def test_a_number_or_a_flag_is_its_default_as_such_and_no_text(schema: dict[str, Any]) -> None:
    of_srun = schema["properties"]["srun"]["properties"]
    assert (of_srun["wait"]["default"], schema["properties"]["standby"]["default"]) == (60, True)
    assert (schema["properties"]["setup"]["default"], of_srun["extra"]["default"]) == ("", [])


def test_only_the_command_or_a_script_is_required(schema: dict[str, Any]) -> None:
    assert "required" not in schema and schema["anyOf"] == [{"required": ["command"]}, {"required": ["script"]}]


def test_the_schema_knows_every_option_in_both_spellings_and_refuses_safelaunchs_own(schema: dict[str, Any]) -> None:
    slurm = schema["properties"]["slurm"]
    spellings = {spelling for name in OPTIONS for spelling in (name, name.replace("-", "_"))}
    refused = set(slurm["propertyNames"]["not"]["enum"])
    assert {one.replace("_", "-") for one in refused} == set(REFUSED)
    assert set(slurm["properties"]) == spellings - refused


@each("path", [*KEYS, *OPEN_SECTIONS])
def test_every_key_has_its_row_in_the_docs(path: str) -> None:
    assert path not in KEYS or f"| {KEYS[path].doc} |" in PAGE
    assert f"| `{path}` |" in PAGE


@each("name", REFUSED)
def test_every_option_that_is_refused_is_named_in_the_docs(name: str) -> None:
    assert f"`{name}`" in PAGE
