"""safelaunch.print0 and safelaunch.print_locked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch import print0, print_locked

# Two writers on one pipe, a line in two writes: without a lock they mix.
WRITER = """\
import sys, time
from safelaunch import print_locked, rankprint
rankprint.WAIT_S = 60.0   # who holds the lock may have to wait for a processor
class Slow:
    def write(self, text):
        for part in (text[:1], text[1:]):
            sys.stdout.write(part)
            sys.stdout.flush()
            time.sleep(0.001)
    def flush(self):
        pass
for n in range(20):
    print_locked("a" * 9, "b" * 9, sep="\\n", file=Slow(), settle_s=0)
"""


@pytest.mark.parametrize(("env", "said"), [
    ({}, "x 1\n"), ({"RANK": "0"}, "x 1\n"), ({"RANK": "3"}, ""), ({"SLURM_PROCID": "2"}, ""),
    ({"RANK": "0", "SLURM_PROCID": "1"}, "x 1\n")])   # torchrun's first rank of the second task
def test_print0_prints_on_rank_0_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], env: dict[str, str], said: str
) -> None:
    for key in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(key, raising=False)
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    print0("x", 1)
    assert capsys.readouterr().out == said


def test_lines_of_one_locked_call_stand_together(tmp_path: Path) -> None:
    out = tmp_path / "out"
    env = {**os.environ, "SAFELAUNCH_LOCAL_DIR": str(tmp_path)}
    with out.open("ab") as file:
        writers = [subprocess.Popen([sys.executable, "-c", WRITER], stdout=file, env=env) for _ in range(3)]
        assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    assert out.read_text().splitlines() == ["a" * 9, "b" * 9] * 60


@pytest.mark.parametrize("hostile", ["a link", "open to others", "a file"])
def test_a_folder_that_is_not_ones_own_is_not_touched_and_the_line_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], hostile: str
) -> None:
    monkeypatch.setenv("SAFELAUNCH_LOCAL_DIR", str(tmp_path))
    folder, elsewhere = tmp_path / f"safelaunch-{os.getuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if hostile == "a link":
        folder.symlink_to(elsewhere)
    elif hostile == "a file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    print_locked("said", settle_s=0)
    assert capsys.readouterr().out == "said\n"
    assert not list(elsewhere.iterdir()) and not list(folder.glob("*"))
