"""What a test run that was killed has left behind is ended by the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.sandbox import registry
from safelaunch.sandbox.cluster import Sandbox
from tests.sandboxes import ORPHANS_TIMEOUT_S, is_orphan

ROOT = Path(__file__).parent.parent.parent
READY = [sys.executable, "-c", "from tests.sandboxes import ready_machine; ready_machine()"]


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_sandbox_of_a_run_that_was_killed_is_ended_by_workers_that_start_together(
    slurm_here: None, dead_pid: int
) -> None:
    with registry.locked("orphans-lock", ORPHANS_TIMEOUT_S):   # else another worker ends it before it is up
        left = Sandbox.up(registry.ROOT / f"pytest-{dead_pid}-0", 1)
    workers = [subprocess.Popen(READY, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [worker.communicate(timeout=ORPHANS_TIMEOUT_S)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], said
    assert not left.dir.exists()
    assert registry.lookup(left.name) is None


@pytest.mark.parametrize(("owner", "age_s", "is_left"), [
    ("pytest-{alive}-0", 0.0, False), ("pytest-{dead}-0", 0.0, True), ("pytest-{alive}-0", 1e6, True),
    ("pytest-{dead}", 0.0, False), ("mine", 1e6, False),
], ids=["run goes on", "run has ended", "pid is another's", "another name", "a person's"])
def test_only_what_a_dead_run_has_left_is_an_orphan(
    tmp_path: Path, dead_pid: int, owner: str, age_s: float, is_left: bool
) -> None:
    marker = tmp_path / registry.MARKER
    marker.touch()
    made_s = marker.stat().st_mtime - age_s
    os.utime(marker, (made_s, made_s))
    name = owner.format(alive=os.getpid(), dead=dead_pid)
    assert is_orphan(registry.RegisteredSandbox(name, str(tmp_path), 0, 1, 1, 0, 0)) == is_left


def test_a_sandbox_that_its_living_run_has_just_ended_is_no_orphan(tmp_path: Path) -> None:
    gone = registry.RegisteredSandbox(f"pytest-{os.getpid()}-0", str(tmp_path), 0, 1, 1, 0, 0)
    assert not is_orphan(gone)
