"""safelaunch config: the resolved config as text, as JSON, and with origins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.cli import run
from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.config.starter import render_value
from safelaunch.errors import ConfigError


@pytest.fixture(autouse=True)
def _a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "site.yaml").write_text("slurm: {account: abc}\n")
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(tmp_path / "site.yaml"))
    monkeypatch.chdir(tmp_path)


TEXT = """\
command: |
  python train.py "a b" ${RESUME_ARGS}
  echo done
setup: module load x
env: {A: "1.10", B: "x # y", C: "$${HOME}", D: "true", E: "été: ✓", F: ""}
slurm: {gpus_per_node: 8, time: 20:00:00, exclusive: true, nice: -5, brand-new: 1}
srun: {extra: [--hint=x, "a, b"]}
resume: {dir: ckpt, args: "--load {path}"}
kill_switch: {grace: 10m}
"""


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["config", *arguments]) == 0
    return capsys.readouterr().out


def test_what_it_prints_is_a_train_yaml_that_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.yaml").write_text(TEXT)
    first = shown(capsys, "t.yaml")
    Path("again.yaml").write_text(first)
    assert shown(capsys, "again.yaml") == first
    assert 'time: "20:00:00"' in first


def test_comments_say_where_each_value_came_from(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Path("t.yaml").write_text(TEXT)
    lines = shown(capsys, "t.yaml", "restart.backoff=5m", "--origin", "--", "-p", "gpu").splitlines()
    assert "  backoff: 5m  # command line" in lines
    assert "  partition: gpu  # command line" in lines
    assert "  max_restarts: 30  # default" in lines
    assert "  grace: 10m  # t.yaml:9:22 (file)" in lines
    assert f"  account: abc  # {tmp_path}/site.yaml:1:18 (site)" in lines


def test_each_row_of_the_policy_has_a_place_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.yaml").write_text("command: x\nrestart:\n  policy:\n    user_code: once\n    hang: stop\n")
    words = ("t.yaml", "restart.policy.cuda_oom=stop")
    lines = shown(capsys, *words, "--origin").splitlines()
    assert [line for line in lines if line.startswith("    #")] == [
        "    # user_code: t.yaml:4:16 (file)", "    # hang: t.yaml:5:11 (file)", "    # cuda_oom: command line"]
    got: dict[str, Any] = json.loads(shown(capsys, *words, "--json"))
    assert got["origins"]["restart.policy.hang"]["line"] == 5


def test_json_holds_the_config_and_the_origins(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.yaml").write_text("command: x\n")
    got: dict[str, Any] = json.loads(shown(capsys, "t.yaml", "--json"))
    assert (got["v"], got["config"]["command"]) == (1, "x")
    assert got["origins"]["command"] == {"layer": "file", "file": "t.yaml", "line": 1, "column": 10}


def test_a_config_that_is_wrong_ends_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.yaml").write_text("x: 1\n")
    assert run(["config", "t.yaml"]) == 2
    assert "t.yaml:1:1: x: unknown key" in capsys.readouterr().err


@given(st.text())
def test_any_text_that_a_value_can_hold_comes_back_from_what_is_printed(text: str) -> None:
    def read(document: str) -> dict[str, Any]:
        return resolve([ConfigLayer("file", "t", document)], [], {}).config

    try:
        got = read(f"command: x\nenv: {{A: {render_value('env.A', text)}}}\nsetup: {render_value('setup', text)}\n")
    except ConfigError as error:
        assert any(phrase in str(error) for phrase in ("NUL", "UTF-8", "no text file may hold"))
    else:
        assert (got["env"]["A"], got["setup"]) == (text, text)
