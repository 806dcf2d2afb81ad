"""The supervisor's folder on the node's own disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

from safelaunch.base.io.localfolder import touch


def test_all_in_it_looks_used_though_nothing_was_written(tmp_path: Path) -> None:
    for name in ("lib/safelaunch", "spool"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "control.json").write_text("{}")
    (tmp_path / "lib/safelaunch/loop.py").touch()
    (tmp_path / "lib/gone.py").symlink_to("/nonexistent")
    there = [tmp_path, *tmp_path.rglob("*")]
    for path in there:
        os.utime(path, (1000, 1000), follow_symlinks=False)
    touch(tmp_path)
    assert all(path.lstat().st_atime > time.time() - 60 for path in there)
    assert all(path.lstat().st_mtime == 1000 for path in there)
