"""The shell files that a command calls, read where they are there at submit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safelaunch.config.io.configfiles import read_config


def test_a_launcher_in_a_called_file_is_noted_and_what_cannot_be_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "torchrun --nproc_per_node 2 a.py\n"
    (tmp_path / "run.sh").write_text(code)
    (tmp_path / "large.sh").write_text(code + "#" * (64 << 10))
    (tmp_path / "binary.sh").write_bytes(b"\xff" + code.encode())
    (tmp_path / "folder.sh").mkdir()
    os.mkfifo(tmp_path / "pipe.sh")
    names = ("missing", "large", "binary", "folder", "pipe", "run")
    command = "; ".join(f"bash {name}.sh" for name in names)
    (tmp_path / "train.yaml").write_text(f"cluster: slurm\ncommand: {command}\nslurm: {{gpus_per_node: 2}}\n")
    notes = read_config("train.yaml", environ={"HOME": str(tmp_path)}).notes
    assert [note.split(" would")[0] for note in notes] == ["run.sh:1: torchrun"]
