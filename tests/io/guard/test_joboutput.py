"""The last words of a supervisor whose run folder is gone."""

from __future__ import annotations

import os
from pathlib import Path

from safelaunch.guard.io.joboutput import leave_line


def test_lines_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "slurm-1.out"
    assert leave_line(str(path), "one\n")
    assert leave_line(str(path), "two\n")
    assert path.read_text() == "one\ntwo\n"


def test_a_link_to_the_lost_output_gives_way_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "slurm-1.out"
    path.symlink_to(tmp_path / "runs/a/slurm-1.out")
    assert leave_line(str(path), "one\n")
    assert (path.is_symlink(), path.read_text()) == (False, "one\n")


def test_nothing_is_written_behind_a_link_into_a_pipe_or_a_folder_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    (tmp_path / "link").symlink_to("there")
    os.mkfifo(tmp_path / "pipe")
    assert [leave_line(str(tmp_path / name), "x\n") for name in ("link", "pipe", "none/slurm-1.out")] == [False] * 3
    assert (tmp_path / "there").read_text() == ""
    assert not (tmp_path / "none").exists()
