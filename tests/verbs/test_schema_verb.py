"""safelaunch schema: JSON on stdout."""

from __future__ import annotations

import json

import pytest

from safelaunch.cli import run


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["command"]["description"].startswith("Required.")
