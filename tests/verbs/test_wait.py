"""safelaunch wait: ends when the run does, with its exit code."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.verbs.common import waiting
from safelaunch.verbs.common.runs import JournalWatch
from tests.handmade import Made, fake_command, make_running
from tests.sandboxes import wait_until


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return make_running(tmp_path, monkeypatch)


@pytest.mark.parametrize(("how", "code"), [
    ("completed", 0), ("gave_up", 10), ("gave_up", 11), ("stopped", 12), ("gave_up", 13),
])
def test_the_exit_code_is_the_runs(bloom: Made, how: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.event(how, exit_code=code, why="that is why")
    assert run(["wait"]) == code
    said = capsys.readouterr()
    assert said.out == "" and f"that is why (exit code {code})" in said.err


def test_it_sees_an_end_that_comes_later(bloom: Made) -> None:
    codes: list[int] = []
    waiter = threading.Thread(target=lambda: codes.append(run(["wait", str(bloom.dir)])))
    waiter.start()
    time.sleep(0.3)
    bloom.event("stopped", why="asked")
    waiter.join(60)
    assert codes == [12]


def test_json_is_one_object(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.completed()
    assert run(["wait", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"v": 1, "name": "bloom", "run_dir": str(bloom.dir), "state": "completed", "exit_code": 0,
                    "why": "attempt 1 ended with exit code 0", "t": told["t"], "ended_early": None}


def test_an_end_far_before_the_total_is_told(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    reach = {"unit": "step", "step": 47, "total": 400, "early": True, "lines": ["step 47/400"]}
    bloom.event("attempt_ended", attempt=1, how="completed", exit_code=0, reach=reach)
    bloom.event("completed", exit_code=0, why="attempt 1 ended with exit code 0. It completed at step 47 of 400")
    early = {"unit": "step", "step": 47, "total": 400, "lines": ["step 47/400"]}
    for verb in (["wait", "--json"], ["status", "--json", str(bloom.dir)]):
        assert run(verb) == 0
        assert json.loads(capsys.readouterr().out)["ended_early"] == early
    assert run(["wait"]) == 0
    assert "completed at step 47 of 400" in capsys.readouterr().err


def test_waiting_in_vain_ends_with_124(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["wait", "--timeout", "300ms"]) == 124
    assert "bloom has not ended within 0 s; it is running" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1:00:00", "soon", "-5"])
def test_a_timeout_of_another_form_is_a_usage_error(bloom: Made, text: str) -> None:
    assert run(["wait", f"--timeout={text}"]) == 2


@pytest.mark.parametrize(("answers", "says"), [
    (["exit 0"], True), (["exit 1"], False), (["echo '12|RUNNING|root|bloom.1a2b3c4d|None|n0'"], False),
], ids=["no job, twice", "no answer", "a job"])
def test_a_run_that_slurm_has_lost_is_said_once_and_waited_for(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    answers: list[str], says: bool
) -> None:
    asked = tmp_path / "asked"
    fake_command(tmp_path / "bin", "squeue", f"echo >>{asked}; {answers[0]}")
    monkeypatch.setattr(waiting, "ASK_EVERY_S", 0.05)

    def end() -> None:
        wait_until(lambda: asked.exists() and asked.stat().st_size > 2, 60, "Slurm is not asked again and again")
        bloom.event("stopped", why="asked")

    ending = threading.Thread(target=end)
    ending.start()
    assert run(["wait"]) == 12
    ending.join()
    assert capsys.readouterr().err.count("unknown: no job of bloom is left") == int(says)


def test_a_job_that_failed_without_a_supervisor_is_the_end_once_slurm_knows_no_other(
    bloom: Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "ASK_EVERY_S", 0.2)
    bloom.event("ended_alone", job="12", exit_code=3)
    assert run(["wait"]) == 10
    said = "job 12 has ended with exit code 3, and without a supervisor that could restart it"
    assert said in capsys.readouterr().err
    run(["status"])
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_journal_that_has_not_changed_is_not_read_again(bloom: Made) -> None:
    watch = JournalWatch(bloom.dir)
    assert watch.poll() is not None
    assert watch.poll() is None
    bloom.event("progress", attempt=1, step=1)
    journal = watch.poll()
    assert journal is not None and journal.events[-1].event == "progress"
