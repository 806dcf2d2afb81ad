"""Nothing of a run folder that another user can have written is executed, and what is one's own is never lost."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safelaunch.base.model import Event
from safelaunch.cli import run
from safelaunch.errors import RunFolderError
from safelaunch.run.io import journal, local, ownership
from safelaunch.script.io.submission import Submission
from tests.handmade import make_run

MALLORY = 60002   # no account: a kernel needs none
TEXT = "name: bloom\ncluster: local\nrun_dir: runs/bloom\ncommand: python train.py\nenv: {SEED: \"1234\"}\n"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away: needs root")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    (tmp_path / "site.yaml").touch()
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(tmp_path / "site.yaml"))
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text(TEXT)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scripts that were started; nothing is."""
    scripts: list[str] = []

    def submit(run_dir: Path, *_: Any) -> str:
        scripts.append((run_dir / "job.sbatch").read_text())
        return "4711"
    monkeypatch.setattr(local, "submit", submit)
    return scripts


def give(path: Path) -> None:
    os.lchown(path, MALLORY, MALLORY)


def link(path: Path) -> None:
    """A link of another user to what was there."""
    moved = path.with_name(f"{path.name}.moved")
    path.rename(moved)
    path.symlink_to(moved)
    give(path)


def open_up(path: Path) -> None:
    path.chmod(0o777)


def let_the_group_write(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


@needs_root
@pytest.mark.parametrize("name", [".", "run.json", "job.sbatch", "submit.env", "journal", "claims"])
@pytest.mark.parametrize("change", [give, link, open_up, let_the_group_write])
def test_a_run_is_ones_own_only_where_all_that_is_executed_is(
    name: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    made = make_run(tmp_path / "run")
    ownership.require(made.dir)
    change(made.dir if name == "." else made.dir / name)
    with pytest.raises(RunFolderError, match="is not yours alone"):
        ownership.require(made.dir)


def test_an_own_run_that_others_could_write_is_closed_to_them(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    assert not ownership.close_run(made.dir)
    for path in (made.dir, *made.dir.iterdir()):
        let_the_group_write(path)
    assert ownership.close_run(made.dir)
    ownership.require(made.dir)
    assert (made.dir / "control").stat().st_mode & 0o020   # that is what it is for


def test_a_link_of_ones_own_may_lead_to_a_run_folder_elsewhere(tmp_path: Path) -> None:
    made = make_run(tmp_path / "large-disk" / "run")
    (tmp_path / "run").symlink_to(made.dir)
    ownership.require(tmp_path / "run")


@needs_root
def test_submit_runs_no_script_that_another_user_has_laid_there(
    tmp_path: Path, started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    planted = make_run(tmp_path / "runs" / "bloom", TEXT, cluster="local")
    (planted.dir / "job.sbatch").write_text("touch owned\n")
    for path in (planted.dir, *planted.dir.rglob("*")):
        give(path)

    assert run(["submit", "train.yaml"]) == 2
    assert not started
    said = capsys.readouterr().err
    assert f"belongs to {MALLORY}" in said and "run_dir=" in said


@needs_root
def test_an_ended_run_of_somebody_else_is_stepped_past(tmp_path: Path, started: list[str]) -> None:
    ended = make_run(tmp_path / "runs" / "bloom", TEXT, cluster="local")
    ended.running()
    ended.completed()
    give(ended.dir)
    assert run(["submit", "train.yaml"]) == 0
    assert started and (tmp_path / "runs" / "bloom-2" / "run.json").exists()


@needs_root
def test_submit_makes_no_run_in_a_folder_whose_parts_are_another_users(
    tmp_path: Path, started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs" / "bloom" / "journal").mkdir(parents=True)
    (tmp_path / "runs" / "bloom" / "mine.txt").write_text("kept")
    give(tmp_path / "runs" / "bloom" / "journal")

    assert run(["submit", "train.yaml"]) == 2
    assert not started and "belongs to" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "bloom" / "run.json").exists()
    assert (tmp_path / "runs" / "bloom" / "mine.txt").exists()


@needs_root
def test_a_shell_takes_no_environment_from_another_users_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_run(tmp_path / "runs" / "bloom", TEXT, cluster="local")
    (made.dir / "submit.env").write_bytes(b"PROMPT_COMMAND=touch owned\0PATH=/usr/bin:/bin")
    give(made.dir / "submit.env")
    monkeypatch.setattr(os, "execvpe", lambda *_: pytest.fail("a shell was opened"))

    assert run(["shell", str(made.dir)]) == 2
    assert "submit.env belongs to" in capsys.readouterr().err


# --- a submission that was cut off ----------------------------------------------------------------------------------


@pytest.fixture
def cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a submission that ended between its folder and its job."""
    def die(_: Submission) -> str:
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(Submission, "submit", die)
        assert run(["submit", "train.yaml"]) == 130
    return tmp_path / "runs" / "bloom"


def test_a_submission_that_was_cut_off_goes_on(cut_off: Path, started: list[str]) -> None:
    assert run(["submit", "train.yaml"]) == 0
    assert started == [(cut_off / "job.sbatch").read_text()]


def test_one_of_a_version_that_wrote_the_values_of_env_into_run_json_goes_on(
    cut_off: Path, started: list[str]
) -> None:
    meta = json.loads((cut_off / "run.json").read_text())
    meta["config"]["env"] = {"SEED": "1234"}
    (cut_off / "run.json").write_text(json.dumps(meta))
    assert run(["submit", "train.yaml"]) == 0
    assert started == [(cut_off / "job.sbatch").read_text()]


@pytest.mark.parametrize("what", ["the configuration", "a value of env", "the job script"])
def test_it_does_not_where_something_has_changed_since(
    what: str, cut_off: Path, started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if what == "the configuration":
        Path("train.yaml").write_text(TEXT.replace("train.py", "other.py"))
    elif what == "a value of env":
        Path("train.yaml").write_text(TEXT.replace("1234", "5678"))
        what = "the job script"
    else:
        (cut_off / "job.sbatch").write_text("#!/bin/bash\n")
    assert run(["submit", "train.yaml"]) == 2
    assert not started
    assert f"{what} has changed since" in capsys.readouterr().err


def test_a_job_that_got_in_before_the_change_is_found_and_the_change_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "runs" / "bloom", TEXT.replace("local", "slurm"), "1a2b3c4d")
    monkeypatch.setattr(Submission, "find", lambda _: "12")
    assert run(["submit", "train.yaml", "cluster=slurm"]) == 0
    assert "job 12 was submitted then; " in capsys.readouterr().err


# --- a disk that is full --------------------------------------------------------------------------------------------


@pytest.fixture
def full_from(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The journal takes no line of that event any more."""
    write = journal.Writer.write

    def go(name: str) -> None:
        def refuse(writer: journal.Writer, *events: Event) -> bool:
            if any(event.event == name for event in events):
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(writer, *events)
        monkeypatch.setattr(journal.Writer, "write", refuse)
    return go


def test_a_full_disk_before_the_submission_leaves_nothing_but_what_was_there(
    tmp_path: Path, full_from: Callable[[str], None], started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs" / "bloom" / "ckpt").mkdir(parents=True)
    full_from("intent")
    assert run(["submit", "train.yaml"]) == 2
    assert "nothing was submitted" in capsys.readouterr().err and not started
    assert [path.name for path in (tmp_path / "runs" / "bloom").iterdir()] == ["ckpt"]


def test_a_full_disk_after_it_keeps_the_folder_and_says_the_jobs_id(
    tmp_path: Path, full_from: Callable[[str], None], started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    full_from("submitted")
    assert run(["submit", "train.yaml"]) == 0
    said = capsys.readouterr()
    assert started and (tmp_path / "runs" / "bloom" / "run.json").exists()
    assert "Submitted batch job 4711" in said.out and "No space left" in said.err and "4711 is submitted" in said.err


def test_no_folder_is_removed_while_nobody_knows_whether_the_job_got_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unclear(self: Submission) -> str:
        self.may_be_in = True
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")   # of the terminal that is told so
    monkeypatch.setattr(Submission, "_submit_local", unclear)
    assert run(["submit", "train.yaml"]) == 2
    assert "whether the job got in is unknown" in capsys.readouterr().err
    assert (tmp_path / "runs" / "bloom" / "run.json").exists()

