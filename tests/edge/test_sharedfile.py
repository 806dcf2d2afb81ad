"""A file of a shared folder is opened as what it says it is, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.adapters import journal, runfolder, sharedfile
from safelaunch.commands.overview import _read_pulse
from safelaunch.errors import RunFolderError
from tests.handmade import make_run


def link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text("{}")
    path.symlink_to(target)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 << 30)


ODD: dict[str, Callable[[Path], object]] = {
    "a link": link, "a pipe": os.mkfifo, "a folder": Path.mkdir, "4 GiB of zeros": huge}
odd = pytest.mark.parametrize("make", ODD.values(), ids=ODD.keys())


@odd
def test_what_is_no_small_regular_file_is_refused_at_once(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "file")
    with pytest.raises(sharedfile.OddFile):
        sharedfile.read(tmp_path / "file", 1000)


@pytest.mark.parametrize("most_bytes", [0, 3, 6, 7, 1 << 20])
def test_the_start_of_a_file_is_as_long_as_asked(most_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    assert sharedfile.read_start(tmp_path / "file", most_bytes) == b"abcdef"[:most_bytes]


@odd
def test_no_file_of_a_run_is_opened_in_another_way(make: Callable[[Path], object], tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    made.submitted()
    for name in ("run.json", "pulse.json", "claims/7"):
        (made.dir / name).unlink(missing_ok=True)
        make(made.dir / name)
    with pytest.raises(RunFolderError):
        runfolder.load(made.dir)
    assert _read_pulse(made.dir, made.run.state(), 0.0) is None
    assert journal.read_claim(made.dir, 7) is None


@pytest.mark.parametrize("make", [link, os.mkfifo, Path.mkdir])
def test_what_is_no_file_of_the_journal_is_left_out_and_said(make: Callable[[Path], object], tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    made.submitted()
    make(made.dir / "journal" / "000007-n0-1.jsonl")
    read = journal.read(made.dir)
    assert [event.event for event in read.events] == ["submitted"]
    assert read.problems == ("journal/000007-n0-1.jsonl: no regular file",)
    assert journal.merge_raw(journal.read_raw(made.dir)).events == read.events
