"""Folders that cannot be written, seen without writing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.run.io.storage import find_trouble, try_to_write
from tests.frozen import FuseMount, LoopMount


def test_a_folder_with_room_is_no_trouble_and_one_that_is_missing_is_made_by_the_training(tmp_path: Path) -> None:
    assert find_trouble([str(tmp_path), str(tmp_path / "missing")]) is None


@pytest.mark.root
def test_a_folder_that_is_mounted_read_only_is_named(loop_mount: LoopMount) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(loop_mount.path)], check=True)
    assert find_trouble([str(loop_mount.path)]) == f"{loop_mount.path} is mounted read-only"


@pytest.mark.root
def test_a_folder_without_room_is_named(loop_mount: LoopMount) -> None:
    with (loop_mount.path / "big").open("wb", buffering=0) as big:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    big.write(b"x" * size)
            except OSError:
                continue
    assert find_trouble([str(loop_mount.path)]) == f"{loop_mount.path} is full"


@pytest.mark.root
def test_byte_is_written_once_the_filesystem_has_thawed_and_leaves_nothing_behind(
    freezable: LoopMount | FuseMount
) -> None:
    folder = freezable.path / "run"
    folder.mkdir()
    freezable.freeze()
    child = subprocess.Popen(try_to_write([str(folder)], sys.executable))
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(2.0)   # how long it must hang at least
    freezable.thaw()
    assert child.wait(60) == 0 and not list(folder.iterdir())


def test_folders_that_are_missing_closed_or_a_file_are_answers(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folders = [str(tmp_path / "missing"), str(tmp_path / "file"), "/proc", str(tmp_path)]
    done = subprocess.run(try_to_write(folders, sys.executable), check=False, timeout=60, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"") and len(list(tmp_path.iterdir())) == 1
