"""The question to squeue that the screens of a user share."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.verbs.common import runs
from safelaunch.verbs.overview import sharedqueue
from tests.handmade import fake_command, make_run

JOB = QueuedJob("12", "RUNNING", "me", "bloom.1a2b3c4d", "None", "n0", 7200.0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    answers(tmp_path, "echo '2:00:00|N/A|12|RUNNING|me|bloom.1a2b3c4d|None|n0'")
    return tmp_path


def answers(place: Path, script: str) -> None:
    fake_command(place / "bin", "squeue", f"echo >>{place}/calls\n{script}")


def calls(place: Path) -> int:
    return len((place / "calls").read_text())


def test_screens_share_an_answer_until_it_is_old(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [sharedqueue.ask() for _ in range(3)]
    assert [word.jobs for word in told] == [(JOB,)] * 3 and calls(place) == 1
    assert told[0].asked_t == told[2].asked_t, "what squeue says of the time left was true then"
    kept = place / "state" / "safelaunch" / "squeue.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "t": 5.0}))
    assert sharedqueue.ask().jobs == (JOB,) and calls(place) == 2
    monkeypatch.setenv("SLURM_CONF", "/another/cluster")
    assert sharedqueue.ask().jobs == (JOB,) and calls(place) == 3


@pytest.mark.parametrize("content", ["", "[]", "{", '{"t": 1e99}', '{"t": "x", "whose": 1, "jobs": 2}'])
def test_a_torn_answer_is_asked_for_again(place: Path, content: str) -> None:
    sharedqueue.ask()
    (place / "state" / "safelaunch" / "squeue.json").write_text(content)
    assert sharedqueue.ask().jobs == (JOB,) and calls(place) == 2


def test_no_answer_is_not_kept(place: Path) -> None:
    answers(place, "exit 1")
    assert sharedqueue.ask().jobs is None and sharedqueue.ask().jobs is None and calls(place) == 2


def test_the_screen_of_one_run_takes_its_own_jobs_of_the_shared_answer(place: Path) -> None:
    for name, jobs in (("bloom", (JOB,)), ("other", ())):
        run = make_run(place / name, f"name: {name}\ncommand: x\nlaunch: {{with: srun}}\nslurm: {{nodes: 1}}\n").run
        assert runs.ask_scheduler(run, with_times=True, mine=sharedqueue.ask).jobs == jobs
    assert calls(place) == 1
