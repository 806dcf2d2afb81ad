"""safelaunch policy: the table as it is for a config or a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import run
from safelaunch.decide.budget import policy
from safelaunch.decide.turn import between
from tests.handmade import YAML, make_run
from tests.localruns import SubmitLocal

TRAIN = """\
command: python train.py
restart:
  max_restarts: 5
  policy:
    hang: restart 3
"""


@pytest.fixture(autouse=True)
def _a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "site.yaml").write_text("restart: {policy: {hub_auth: restart 9}}\n")
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(tmp_path / "site.yaml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text(TRAIN)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["policy", "--json", *words]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def rows(answer: dict[str, Any]) -> dict[str, tuple[str, int | None, str | None]]:
    return {row["category"]: (row["then"], row["budget"], row["place"]) for row in answer["policy"]}


# --- the table ------------------------------------------------------------------------------------------------------


def test_without_an_argument_it_shows_the_defaults_under_the_sites_word(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answer = asked(capsys)
    assert rows(answer)["hub_auth"] == ("restart", 9, f"{tmp_path}/site.yaml:1")
    others = {category: row for category, row in rows(answer).items() if category != "hub_auth"}
    assert others == {category: (row.then, row.budget, None) for category, row in policy.DEFAULTS.items()
                      if category != "hub_auth"}


def test_a_row_says_in_which_line_of_train_yaml_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, "train.yaml", "restart.policy.network=stop")
    assert rows(answer)["hang"] == ("restart", 3, "train.yaml:5")
    assert rows(answer)["network"] == ("stop", None, "command line")
    assert rows(answer)["unknown"] == ("exclude", None, None)


def test_budgets_are_shown_with_their_places(capsys: pytest.CaptureFixture[str]) -> None:
    budgets = {row["key"]: (row["value"], row["place"]) for row in asked(capsys, "train.yaml")["budgets"]}
    assert budgets["restart.max_restarts"] == (5, "train.yaml:3")
    assert budgets["restart.backoff"] == (60.0, None)
    assert {"resume.keep_trying", "suspects.max_excluded"} <= set(budgets)


def test_the_rows_between_attempts_stand_in_the_order_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    order = asked(capsys)["order"]
    assert [row["row"] for row in order] == [row.__name__.strip("_") for row in between.BETWEEN]
    assert all(row["why"].endswith(".") and ". " not in row["why"] for row in order)   # one whole sentence


def test_people_see_what_the_default_of_a_row_of_theirs_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "train.yaml"]) == 0
    text = capsys.readouterr().out
    assert "hang              restart    3       train.yaml:5 says so; the default is exclude 6: " in text
    assert "suspects.forget_after          7d " in text and "restart.backoff                1m " in text


def test_a_runs_own_policy_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = make_run(tmp_path / "bloom", YAML + "restart: {policy: {hang: stop}, max_restarts: 2}\n")
    answer = asked(capsys, str(made.dir), "restart.policy.data=stop")
    assert rows(answer)["hang"] == ("stop", None, "train.yaml")   # this run.json has no origins
    assert rows(answer)["data"] == ("stop", None, "command line")
    assert answer["budgets"][0]["value"] == 2


@pytest.mark.parametrize(("words", "said"), [
    (("nope.yaml",), "nope.yaml: no such file"),
    (("restart.policy.netwrk=stop",), "restart.policy: netwrk: no such category"),
    (("train.yaml", "bloom"), "one FILE or RUN at a time"),
    (("bloom", "slurm.nodes=4"), "slurm.nodes does not change what follows a failure"),
], ids=["no file", "no category", "two things", "no part"])
def test_what_makes_no_sense_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "bloom").running()
    words = tuple(str(tmp_path / "bloom") if word == "bloom" else word for word in words)
    assert run(["policy", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["policy", "nodes"])
def test_a_site_file_that_is_named_and_missing_is_an_error(verb: str, monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", "/nowhere/site.yaml")
    assert run([verb]) == 2
    assert "/nowhere/site.yaml: no such file" in capsys.readouterr().err


def test_a_row_of_a_run_is_taken_back_by_an_empty_override(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_run(tmp_path / "own", YAML + "restart: {policy: {network: stop}}\n")
    assert rows(asked(capsys, str(made.dir), "restart.policy.network="))["network"] == ("exclude", 6, None)


def test_a_narrow_terminal_gets_narrow_lines(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("")   # its path is one long word
    code = f"import sys; sys.path[:0] = {sys.path!r}; from safelaunch.cli import main; main(['policy', 'train.yaml'])"
    shown = subprocess.run(
        ["script", "-qec", f"stty cols 80; {sys.executable} -c \"{code}\"", "/dev/null"], cwd=tmp_path, text=True,
        capture_output=True, timeout=60, stdin=subprocess.DEVNULL).stdout
    lines = shown.replace("\r", "").splitlines()
    assert len(lines) > 40 and max(map(len, lines)) <= 80


def test_an_override_of_one_row_reaches_a_submitted_run(submit_local: SubmitLocal) -> None:
    local = submit_local("--steps 3 --step-time 0.01", "restart.policy.network=stop", "restart.policy.hang=restart 2")
    local.wait_end()
    config = json.loads((local.run_dir / "run.json").read_text())["config"]
    assert config["restart"]["policy"] == {"hub_auth": "restart 9", "network": "stop", "hang": "restart 2"}
