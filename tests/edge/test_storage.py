"""Folders that cannot be written, seen without writing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from safelaunch.adapters.storage import find_trouble
from tests.frozen import LoopMount


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
