"""The JSON Schema, and the page that documents every key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from safelaunch.core.config.keys import KEYS, NOT_BUILT, OPEN_SECTIONS
from safelaunch.core.config.sbatchoptions import OPTIONS, REFUSED
from safelaunch.core.config.schema import train_schema

PAGE = (Path(__file__).parents[2] / "docs" / "train-yaml.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return train_schema()


def _section(schema: dict[str, Any], name: str) -> dict[str, Any]:
    reference = next(one["$ref"] for one in schema["properties"][name]["anyOf"] if "$ref" in one)
    section: dict[str, Any] = schema["$defs"][reference.rpartition("/")[2]]
    return section


def test_the_schema_is_json_and_names_its_draft(schema: dict[str, Any]) -> None:
    assert json.loads(json.dumps(schema))["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("path", KEYS)
def test_every_key_is_in_the_schema_with_its_meaning(schema: dict[str, Any], path: str) -> None:
    section, _, name = path.rpartition(".")
    holder = _section(schema, section) if section else schema
    assert holder["properties"][name]["description"] == KEYS[path].doc
    assert holder["additionalProperties"] is False


def test_only_the_command_is_required(schema: dict[str, Any]) -> None:
    assert schema["required"] == ["command"]


def test_the_schema_knows_every_option_in_both_spellings_and_refuses_safelaunchs_own(schema: dict[str, Any]) -> None:
    slurm = _section(schema, "slurm")
    spellings = {spelling for name in OPTIONS for spelling in (name, name.replace("-", "_"))}
    refused = set(slurm["propertyNames"]["not"]["enum"])
    assert {one.replace("_", "-") for one in refused} == set(REFUSED)
    assert set(slurm["properties"]) == spellings - refused


@pytest.mark.parametrize("path", [*KEYS, *OPEN_SECTIONS])
def test_every_key_has_its_row_in_the_docs(path: str) -> None:
    assert path not in KEYS or f"| {KEYS[path].doc} |" in PAGE
    assert f"| `{path}` |" in PAGE


@pytest.mark.parametrize("path", NOT_BUILT)
def test_every_key_that_is_not_built_is_named_in_the_docs(path: str) -> None:
    assert f"`{path.replace('=', ': ')}`" in PAGE


@pytest.mark.parametrize("name", REFUSED)
def test_every_option_that_is_refused_is_named_in_the_docs(name: str) -> None:
    assert f"`{name}`" in PAGE
