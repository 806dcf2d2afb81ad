"""submit says where the run will start: from which checkpoint, and past which."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.cli import run

TEXT = """\
cluster: local
command: python train.py ${RESUME_ARGS}
resume: {dir: ckpt, format: pattern, pattern: "step_{step}.json", args: "--load {path}"}
"""


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "site.yaml").touch()
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(tmp_path / "site.yaml"))
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text(TEXT)


def save(*steps: int, empty: tuple[int, ...] = ()) -> None:
    Path("ckpt").mkdir(exist_ok=True)
    for step in (*steps, *empty):
        Path(f"ckpt/step_{step}.json").write_text("" if step in empty else "{}")


def said(capsys: pytest.CaptureFixture[str], *overrides: str) -> list[str]:
    assert run(["submit", "--dry-run", "train.yaml", *overrides]) == 0
    return capsys.readouterr().err.replace(f"{Path.cwd()}/", "").splitlines()[1:]


def test_without_a_checkpoint_it_starts_from_the_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == ["no checkpoint yet in ckpt: starts from the beginning"]


def test_the_newest_complete_checkpoint_is_named_with_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    save(80, 100)
    assert said(capsys) == ["resumes from ckpt/step_100.json, step 100"]


def test_what_is_newer_and_skipped_is_named_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    save(100, empty=(120,))
    assert said(capsys) == ["resumes from ckpt/step_100.json, step 100", "1 checkpoint skipped:",
                            "  ckpt/step_120.json: empty"]


def test_of_many_the_newest_three_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    save(empty=(100, 120, 140, 160))
    first, count, *shown = said(capsys)
    assert (first, count) == ("no complete checkpoint in ckpt: starts from the beginning", "4 checkpoints skipped:")
    assert len(shown) == 4 and "step_160.json" in shown[0] and shown[3].endswith("safelaunch checkpoints ckpt")


def test_of_a_training_that_resumes_by_itself_it_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    save(100)
    assert said(capsys, "resume.by=training") == [
        "the training is to go on by itself from ckpt/step_100.json, step 100"]


def test_a_folder_that_cannot_be_read_is_unknown_and_never_none(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ckpt").symlink_to("ckpt")
    (line,) = said(capsys)
    assert line.startswith("where it starts is not known: ckpt cannot be read")


def test_a_run_that_does_not_resume_says_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.yaml").write_text("cluster: local\ncommand: python train.py\n")
    assert said(capsys) == []
