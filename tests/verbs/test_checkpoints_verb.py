"""safelaunch checkpoints: what is listed of a run, a train.yaml, a folder, a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import run
from tests.handmade import YAML, Made, make_run
from tests.pure.checkpoints.checkpoint_files import torch_file


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a whole checkpoint of step 2 and a cut one of step 4, and a train.yaml beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "ckpt"
    folder.mkdir()
    (folder / "step_2.pt").write_bytes(torch_file())
    (folder / "step_4.pt").write_bytes(torch_file()[:-9])
    (tmp_path / "train.yaml").write_text(f"{YAML}resume: {{dir: ckpt, by: training}}\n")
    return folder


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["checkpoints", *words, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def make_resuming(folder: Path) -> Made:
    return make_run(folder, f"{YAML}resume: {{dir: {folder.parent}/ckpt, by: training}}\n")


@pytest.mark.parametrize("what", ["ckpt", "train.yaml"])
def test_the_newest_comes_first_and_a_skipped_one_has_its_reason(
    saved: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    answer = told(capsys, what)
    assert answer["dir"] == str(saved)
    assert [(one["step"], one["complete"]) for one in answer["candidates"]] == [(4, False), (2, True)]
    assert answer["candidates"][0]["reason"].startswith("truncated")
    assert answer["next"]["path"] == str(saved / "step_2.pt")


def test_people_read_it_in_lines(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["checkpoints", str(saved)]) == 0
    said = capsys.readouterr()
    assert [line.split()[:3] for line in said.out.splitlines()] == [
        ["skipped", "4", "torch"], ["complete", "2", "torch"]]
    assert said.err == f"an attempt resumes from step 2, {saved / 'step_2.pt'}\n"


def test_what_an_attempt_of_the_run_could_not_load_is_skipped(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_resuming(tmp_path / "bloom")
    made.submitted()
    made.event("checkpoint_rejected", path=str(saved / "step_2.pt"), step=2, attempt=1, why="does not load")
    answer = told(capsys, "bloom")
    assert answer["next"] is None
    assert answer["candidates"][1]["reason"] == "an attempt could not load it"


def test_a_file_or_a_folder_that_is_a_checkpoint_is_judged_alone(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = told(capsys, str(saved / "step_4.pt"))
    assert [one["step"] for one in answer["candidates"]] == [4]
    assert answer["next"] is None


def test_format_and_pattern_are_those_of_resume(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (saved / "state-7.bin").write_bytes(b"x")
    assert told(capsys, "ckpt", "--pattern", "state-{step}.bin")["next"]["step"] == 7
    assert told(capsys, "ckpt", "--format", "dcp")["next"] is None


def test_with_all_it_goes_on_behind_five_complete_ones(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(10, 18):
        (saved / f"step_{step}.pt").write_bytes(torch_file())
    assert len(told(capsys, "ckpt")["candidates"]) == 5
    assert len(told(capsys, "ckpt", "--all")["candidates"]) == 10


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "no run is known as 'nowhere'"),
        (["plain.yaml"], "no resume.dir"),
        (["ckpt", "--format", "pattern"], "needs a --pattern"),
        (["ckpt", "--format", "torch", "--pattern", "x"], "no other format takes one"),
    ],
)
def test_a_wrong_ask_is_refused(
    saved: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    Path("plain.yaml").write_text(YAML)
    assert run(["checkpoints", *words]) == 2
    assert says in capsys.readouterr().err
