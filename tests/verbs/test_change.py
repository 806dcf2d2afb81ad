"""`safelaunch change`: Slurm checks first; then the file for later submissions, and the jobs that wait."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.script.io import laterjobs
from tests.handmade import Made, fake_command, make_run
from tests.verbs.test_hold import Queue, job


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    made = make_run(tmp_path / "bloom")
    made.running()
    return made


def test_a_change_is_checked_kept_told_to_the_job_that_waits_and_shown(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = Queue(tmp_path, job("12", "RUNNING", "None"), job("13"))
    fake_command(tmp_path / "bin", "sbatch", f'echo "$*" >{tmp_path}/sbatch.words')

    assert run(["change", "time=2:00:00", "partition=long"]) == 0

    said = capsys.readouterr().err
    assert "job 13 in the queue is changed, too" in said and "a job that runs keeps its own" in said
    words = (tmp_path / "sbatch.words").read_text()
    assert "--test-only" in words and "--time=2:00:00 --partition=long" in words
    assert queue.said == ["update JobId=13 TimeLimit=2:00:00 Partition=long"]
    assert laterjobs.read(bloom.dir) == {"time": "2:00:00", "partition": "long"}
    assert run(["status", "bloom"]) == 0
    assert "time 2:00:00, partition long" in capsys.readouterr().out


def test_what_slurm_refuses_changes_nothing(bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue = Queue(tmp_path, job("13"))
    fake_command(tmp_path / "bin", "sbatch", "echo 'allocation failure: Invalid partition name specified' >&2; exit 1")

    assert run(["change", "partition=nope"]) == 3

    assert "Invalid partition" in capsys.readouterr().err
    assert queue.said == [] and laterjobs.read(bloom.dir) == {}


def test_a_job_that_slurm_does_not_change_is_named(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Queue(tmp_path, job("13"), scontrol="echo 'Access/permission denied' >&2; exit 1")
    fake_command(tmp_path / "bin", "sbatch", "exit 0")

    assert run(["change", "time=60", "--json"]) == 3

    (left,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (left["id"], left["state"], left["why"]) == ("13", "left", "Access/permission denied")
    assert laterjobs.read(bloom.dir) == {"time": "60"}


@pytest.mark.parametrize("make", [
    lambda path: path.symlink_to("/etc/hostname"), lambda path: path.mkdir(),
    lambda path: (path.write_text('{"v": 1, "time": "60"}'), path.chmod(0o666)), lambda path: path.write_text("{"),
], ids=["a link", "a folder", "open to others", "torn"])
def test_a_file_that_is_not_its_owners_alone_changes_nothing(make: object, bloom: Made) -> None:
    make(bloom.dir / laterjobs.FILE)   # type: ignore[operator]
    assert laterjobs.read(bloom.dir) == {}
