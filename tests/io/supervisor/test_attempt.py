"""An attempt's processes as a leader finds them that did not launch them."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path

import pytest

from safelaunch.supervisor.io import attempt
from safelaunch.supervisor.io.attempt import AttemptProcess


def test_an_adopted_attempt_lives_as_long_as_any_process_of_it(tmp_path: Path) -> None:
    launched = AttemptProcess(tmp_path, 1)
    launched.facts_file.write_text("{}")
    launched.spool.touch()
    env = {**os.environ, "SAFELAUNCH_EXIT_FILE": str(launched.exit_file)}
    shepherd, srun = (subprocess.Popen(["sleep", "600"], env=env) for _ in range(2))
    try:
        adopted = AttemptProcess.adopt(tmp_path, 1)
        assert adopted is not None and adopted.poll() is None

        shepherd.kill()
        shepherd.wait()
        assert adopted.poll() is None, "a killed shepherd leaves its srun"
        srun.kill()
        srun.wait()
        assert adopted.poll() == 255, "it ended without leaving a code"
    finally:
        for process in (shepherd, srun):
            process.kill()
            process.wait()


def test_an_adopted_attempts_code_is_what_its_shepherd_left(tmp_path: Path) -> None:
    launched = AttemptProcess(tmp_path, 1)
    launched.facts_file.write_text("{}")
    launched.spool.touch()
    launched.exit_file.write_text("9\n")

    adopted = AttemptProcess.adopt(tmp_path, 1)

    assert adopted is not None and adopted.poll() == 9


@pytest.mark.parametrize(("how", "expected"), [("exit 0", 0), ("exit 9", 9), ("kill -KILL $$", 255)])
def test_on_a_full_disk_an_attempts_code_is_its_shepherds(tmp_path: Path, how: str, expected: int) -> None:
    (tmp_path / "job.sbatch").write_text(f"{how}\n")
    launched = AttemptProcess.launch(tmp_path, 1, [], os.environ, {})
    assert launched.child is not None
    launched.child.wait()
    assert launched.poll() == expected


@pytest.mark.parametrize(("soft", "told"), [(1024, "1024"), (resource.RLIM_INFINITY, "unlimited")])
def test_an_attempt_is_told_the_limit_of_files_that_slurm_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soft: int, told: str
) -> None:
    monkeypatch.setattr(attempt, "_LIMIT", (soft, resource.RLIM_INFINITY))
    (tmp_path / "job.sbatch").write_text('echo "$SAFELAUNCH_FILES"\n')
    launched = AttemptProcess.launch(tmp_path, 1, [], os.environ, {})
    assert launched.child is not None and launched.child.wait() == 0
    assert launched.spool.read_text() == f"{told}\n"


def test_a_pump_that_is_told_to_leave_says_by_its_code_that_all_is_copied(tmp_path: Path) -> None:
    process = AttemptProcess(tmp_path, 1)
    process.spool.write_bytes(b"step 1\n" * 1000)
    assert not process.finish_pump(), "there is none yet"

    process.keep_pump(str(tmp_path / "main.log"), 0.0)
    assert process.pump is not None
    while not process.pump_file.exists():   # before that a TERM ends it like any process
        assert process.pump.poll() is None
        time.sleep(0.01)
    with process.spool.open("ab") as spool:
        spool.write(b"the last words\n")
    assert process.finish_pump()

    assert process.pump.wait() == 0
    assert (tmp_path / "main.log").read_bytes() == process.spool.read_bytes()


def test_a_log_that_nobody_copies_gives_its_oldest_part_back_to_the_disk(tmp_path: Path) -> None:
    process = AttemptProcess(tmp_path, 1)
    process.spool.write_bytes(b"old\n" * (1 << 18) + b"new\n")
    before = process.spool.stat().st_blocks
    subprocess.run(process.forget_before(1 << 20), check=True)
    assert process.spool.stat().st_blocks < before
    assert process.size() == (1 << 20) + 4 and process.tail(4) == b"new\n"
