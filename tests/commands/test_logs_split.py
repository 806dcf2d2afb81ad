"""safelaunch logs --split: one file for each rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.node import ranklogs
from tests.handmade import Made, make_running

LOG = b"srun: starting\n[n0:1]: one\n[n0:0]: zero\n\xff\n[n0:1]: two\n[n0:0]: torn"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A run whose attempt has a log of two ranks."""
    made = make_running(tmp_path, monkeypatch)
    made.log(1, LOG)
    return made


def test_each_rank_has_a_file_with_its_lines_in_order(made: Made, tmp_path: Path) -> None:
    assert run(["logs", "--split", "ranks/new"]) == 0
    folder = tmp_path / "ranks" / "new" / "attempt-1"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "rank-0-n0.log": b"[n0:0]: zero\n[n0:0]: torn\n", "rank-1-n0.log": b"[n0:1]: one\n[n0:1]: two\n",
        "other.log": b"srun: starting\n\xff\n"}
    assert not any(path.stat().st_mode & 0o077 for path in (folder, *folder.iterdir()))


def test_only_the_wanted_lines_are_written(made: Made, tmp_path: Path) -> None:
    assert run(["logs", "--split", "ranks", "--grep", "two"]) == 0
    assert [path.name for path in (tmp_path / "ranks" / "attempt-1").iterdir()] == ["rank-1-n0.log"]


def test_a_log_full_of_odd_prefixes_makes_no_more_files_than_are_allowed(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranklogs, "MOST_FILES", 3)
    made.log(1, b"\n" + b"".join(b"[n0:%d]: x\n" % number for number in range(50)))
    assert run(["logs", "--split", "ranks"]) == 0
    files = sorted((tmp_path / "ranks" / "attempt-1").iterdir())
    assert len(files) == 3 and sum(file.read_bytes().count(b"\n") for file in files) == 7 + 49


def test_nothing_is_written_over(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ranks" / "attempt-1").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    for words, reason in ((["ranks"], "attempt-1 is there already; name another folder"), (["file"], "File exists"),
                          (["other", "-f"], "cannot be combined")):
        assert run(["logs", "--split", *words]) == 2
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
