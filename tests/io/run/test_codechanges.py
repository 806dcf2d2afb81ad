"""Files of the training that somebody has edited between two attempts."""

from __future__ import annotations

import os
from pathlib import Path

from safelaunch.run.codefiles import code_files
from safelaunch.run.io.codechanges import changed_since


def test_an_edited_file_and_an_edited_module_beside_it_are_told(tmp_path: Path) -> None:
    for name in ("train.py", "model.py", "notes.txt", "conf.yaml"):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (100.0, 100.0))
    names = code_files("python train.py --config conf.yaml missing.py")
    assert changed_since(str(tmp_path), names, 100.0) == []
    os.utime(tmp_path / "model.py", (300.0, 300.0))
    os.utime(tmp_path / "notes.txt", (300.0, 300.0))
    assert changed_since(str(tmp_path), names, 200.0) == ["model.py"]
