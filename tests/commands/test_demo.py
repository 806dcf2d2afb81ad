"""safelaunch demo: the crash and the recovery, without Slurm, root or torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.cli import run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def test_the_demo_crashes_recovers_and_says_what_to_type_next(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "safelaunch", "demo"], cwd=tmp_path, text=True, capture_output=True,
                          timeout=60, env={**os.environ, "SAFELAUNCH_LOCAL_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    at = [done.stdout.index(text) for text in (
        "attempt 1 starts", "step 80 loss", "the power goes out", "attempt 1 failed", "step_000100.pt is skipped: ",
        "attempt 2 starts on local0 from step 80", "going on after step 80", "step 200 loss", "the run has completed",
        "safelaunch status",
    )]
    assert at == sorted(at)
    assert "\x1b" not in done.stdout


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("precious")
    assert run(["demo", "--dir", "mine"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "mine" / "train.py").read_text() == "precious"
