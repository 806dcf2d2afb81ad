"""`safelaunch clean`: a plan first, then only what it named; never through a link."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from safelaunch.base.io import removal
from safelaunch.cli import run
from safelaunch.errors import RunFolderError
from safelaunch.run.io import registry
from tests.handmade import YAML, Made, make_run

DAY = 86400.0


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def make(folder: Path, run_id: str, ended_days_ago: float | None, *words: str) -> Made:
    made = make_run(folder, YAML, run_id, *words)
    registry.register(made.dir, made.run.plan.name, run_id, "12", "")
    made.submitted()
    made.log(1, b"step 1\n" * 1000)
    if ended_days_ago is not None:
        made.event("completed", ago_s=ended_days_ago * DAY, exit_code=0, why="attempt 1 ended with exit code 0")
    return made


def test_without_yes_nothing_goes_and_with_it_only_the_old_ended_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, young, living = (make(tmp_path / name, f"1a2b3c4{name[0]}", days) for name, days in (
        ("a", 40.0), ("b", 1.0), ("c", None)))
    (old.dir / "results.csv").write_text("kept")

    assert run(["clean"]) == 0
    out, err = capsys.readouterr()
    assert str(old.dir) in out and "stays: results.csv" in out and "nothing is deleted yet: 1 run" in err
    assert (old.dir / "run.json").exists()

    assert run(["clean", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["run_dir"], one["trouble"]) for one in told["runs"]] == [(str(old.dir), None)]
    assert {one["why"] for one in told["kept"]} == {"it has not ended", "it ended too short a time ago"}
    assert os.listdir(old.dir) == ["results.csv"]
    assert (young.dir / "run.json").exists() and (living.dir / "run.json").exists()
    assert run(["clean"]) == 0 and "nothing to delete" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--checkpoints"]], ids=["they stay", "they go"])
def test_checkpoints_go_only_by_their_own_flag(words: list[str], tmp_path: Path) -> None:
    old = make(tmp_path / "a", "1a2b3c4a", 40.0, f"resume.dir={tmp_path / 'a' / 'ckpt'}", "resume.by=training",
               "resume.args=")
    (old.dir / "ckpt").mkdir()
    (old.dir / "ckpt" / "step_1.pt").write_bytes(b"1" * 100)

    assert run(["clean", "--yes", *words]) == 0
    assert (old.dir / "ckpt" / "step_1.pt").exists() == (not words)


def test_a_named_run_that_may_not_go_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    living = make(tmp_path / "c", "1a2b3c4c", None)
    assert run(["clean", "--yes", str(living.dir)]) == 2
    assert "it has not ended" in capsys.readouterr().err and (living.dir / "run.json").exists()


def test_a_link_in_a_run_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    old = make(tmp_path / "a", "1a2b3c4a", 40.0)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").write_text("kept")
    (old.dir / "attempts" / "0001" / "away").symlink_to(tmp_path / "precious")
    shutil.rmtree(old.dir / "claims")
    (old.dir / "claims").symlink_to(tmp_path / "precious")

    assert run(["clean", "--yes"]) == 0
    assert not old.dir.exists() and (tmp_path / "precious" / "data").read_text() == "kept"


def test_a_run_folder_that_has_become_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(RunFolderError, match="a link"):
        removal.open_own(str(tmp_path / "link"))


@pytest.mark.root
def test_another_users_folder_inside_stops_the_deletion_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    old = make(tmp_path / "a", "1a2b3c4a", 40.0)
    (old.dir / "attempts" / "0001" / "bobs").mkdir()
    os.chown(old.dir / "attempts" / "0001" / "bobs", 65534, 65534)

    assert run(["clean", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == [] and "another user's" in told["kept"][0]["why"]
    assert (old.dir / "attempts" / "0001" / "main.log").exists()
