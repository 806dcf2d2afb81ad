"""safelaunch progress: what is read in a log, and a pattern that is tried on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.run.io.runfolder import attempt_folder
from safelaunch.verbs.logs import steplook
from tests.handmade import make_running

LOG = "starting\nbatch a1 of x, loss 2.0\nsaving\nbatch a2 of x, loss 1.5\nbatch a3 of x, loss 1.0"
OWN = r"batch a(\d+)"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "own.log").write_text(LOG)
    return tmp_path / "own.log"


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["progress", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_log_without_steps_says_which_line_comes_nearest(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, str(log))
    assert code == 1
    assert "no line names a step that is read" in out and "nearest    batch a3 of x, loss 1.0" in out
    assert "--pattern" in out


@pytest.mark.parametrize("piece", [16, 1 << 20], ids=["in pieces", "at once"])
def test_a_pattern_is_tried(log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
                            piece: int) -> None:
    monkeypatch.setattr(steplook, "PIECE_BYTES", piece)
    code, out, _ = ask(capsys, str(log), "--pattern", OWN, "--json")
    seen = json.loads(out)
    assert code == 0
    assert seen["first"] == {"step": 1, "line": 2, "text": "batch a1 of x, loss 2.0"}
    assert seen["last"] == {"step": 3, "line": 5, "text": "batch a3 of x, loss 1.0"}
    assert (seen["lines"], seen["read"], seen["loss"], seen["total"]) == (5, 3, 1.0, None)
    assert seen["unread"] == {"lines": 2, "nearest": "saving", "last": ["starting", "saving"]}
    assert f"in train.yaml: progress: {{step: '{OWN}'}}" in ask(capsys, str(log), "--pattern", OWN)[1]


def test_a_known_trainers_log_needs_no_pattern(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text("".join(f"step {step}/400 loss 2.5 500 ms/step\n" for step in range(1, 40)))
    code, out, _ = ask(capsys, str(tmp_path / "log"))
    assert code == 0 and "last       step 39 of 400, in line 39: step 39/400" in out and "step time  500 ms" in out


@pytest.mark.parametrize(("words", "wrong"), [
    (["own.log", "--pattern", "batch"], "exactly one group"), (["own.log", "--pattern", "("], "regular expression"),
    (["no.log"], "no such file"), (["./no"], "no such file"),
], ids=["no group", "no expression", "no file", "no path"])
def test_what_is_wrong_is_said(log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
                               words: list[str], wrong: str) -> None:
    monkeypatch.chdir(log.parent)
    code, out, err = ask(capsys, *words)
    assert (code, out) == (2, "") and wrong in err


def test_a_run_is_its_newest_attempts_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_deadlines: None,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    bloom = make_running(tmp_path, monkeypatch)
    log = bloom.dir / attempt_folder(1) / "main.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("Train Epoch: 1 [3776/60000 (6%)]\tLoss: 0.016949\n")
    code, out, _ = ask(capsys, str(bloom.dir))
    assert code == 0 and "step 3776" in out
