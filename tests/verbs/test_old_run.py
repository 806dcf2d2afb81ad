"""A run folder and a ledger that commit 4e50d35 wrote on a real Slurm: a crash, and a node that died."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.nodehealth.io import ledger
from safelaunch.run.io import runfolder
from safelaunch.verbs.common.eventwords import SENTENCES
from tests.handmade import fake_command

PACKED = Path(__file__).parents[1] / "fixtures" / "commit_4e50d35" / "run.tar.xz"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run's folder; Slurm has forgotten its jobs."""
    with tarfile.open(PACKED) as packed:
        packed.extractall(tmp_path)
    for name in ("squeue", "sacct", "scontrol"):
        fake_command(tmp_path / "bin", name, "")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "drill"


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run([*words]) == 0, capsys.readouterr()
    return capsys.readouterr().out


def test_its_journal_folds_to_its_state(old: Path) -> None:
    kept = runfolder.load(old)
    assert kept.journal().problems == ()
    assert {event.event for event in kept.journal().events} <= set(SENTENCES)
    state = kept.state()
    assert [(attempt.number, attempt.ended, attempt.resume_step) for attempt in state.attempts] == [
        (1, "failed", None), (2, "lost", 20), (3, "completed", 40)]
    assert state.ended is not None and (state.ended.how, state.ended.exit_code) == ("completed", 0)


def test_status_and_events_tell_of_it(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(typed(capsys, "status", "--json", str(old)))
    assert (told["v"], told["state"]) == (1, "completed")
    assert "attempt 3 starts on n[0,2] from step 40" in typed(capsys, "events", str(old))
    lines = typed(capsys, "events", "--json", str(old)).splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [event.seq for event in runfolder.load(old).journal().events]


def test_why_explains_each_of_its_attempts_and_shows_what_was_recorded(
    old: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = (json.loads(typed(capsys, "why", str(old), "--attempt", number, "--json")) for number in ("1", "2"))
    assert first["recorded"]["category"] == "host_oom" and "killed by signal 9" in first["verdict"]["summary"]
    assert (second["verdict"]["category"], second["verdict"]["host"]) == ("node_failure", "n1")


def test_its_evidence_against_a_node_counts(old: Path) -> None:
    (one,) = ledger.read(ledger.folder_of(runfolder.load(old).plan.suspects, os.environ))
    assert (one.node, one.kind) == (runfolder.load(old).state().attempts[1].nodes[1], "lost")
