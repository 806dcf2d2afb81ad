"""Variables for looking into a failure, as overrides of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.config.debugpresets import PRESETS, debug_overrides, debug_variables
from tests.tables import each

DOCS = Path(__file__).parents[3] / "docs" / "verbs.md"


def test_a_variable_of_two_presets_is_set_once() -> None:
    names = [one.name for one in debug_variables(["trace", "cuda", "hang"])]
    assert names.count("PYTHONFAULTHANDLER") == 1 and len(names) == len(set(names))


def test_presets_never_set_one_variable_to_two_values() -> None:
    everything = debug_variables(PRESETS)
    assert len({one.name for one in everything}) == len(everything)


@each("preset", PRESETS)
def test_the_documentation_names_every_variable_with_its_value(preset: str) -> None:
    row = next(line for line in DOCS.read_text().splitlines() if line.startswith(f"| `{preset}` |"))
    assert [f"`{one.name}={one.value}`" for one in PRESETS[preset]] == row.split(" | ")[2].rstrip(" |").split(", ")


def test_a_preset_reaches_the_script_and_a_typed_value_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.yaml").write_text("command: python train.py\nenv: {NCCL_DEBUG: WARN}\n")
    file = str(tmp_path / "train.yaml")
    assert run(["script", file, "--debug", "nccl", "env.NCCL_DEBUG_SUBSYS=ALL"]) == 0
    script = capsys.readouterr().out
    assert "NCCL_DEBUG=INFO" in script.replace("'", "") and "NCCL_DEBUG_SUBSYS=ALL" in script.replace("'", "")
    assert "NCCL_DEBUG=WARN" not in script.replace("'", "")
    assert debug_overrides(["nccl"])[0] == "env.NCCL_DEBUG=INFO"


def test_submit_says_what_each_variable_shows_and_refuses_an_unknown_preset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.yaml").write_text("command: python train.py\ncluster: local\n")
    file = str(tmp_path / "train.yaml")
    assert run(["submit", "--dry-run", "--debug", "hang", file]) == 0
    assert "debug: TORCH_NCCL_DUMP_ON_TIMEOUT=1: at a timeout" in capsys.readouterr().err
    assert run(["submit", "--dry-run", "--debug", "gpu", file]) == 2
    assert "nccl" in capsys.readouterr().err
