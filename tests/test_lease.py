"""What a killed test run leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from tests.sandboxes import wait_until

RUN = """import os, subprocess, sys
from tests.lease import leased
child = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], env={**os.environ, **leased()},
                         start_new_session=True, stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline(), flush=True)
sys.stdin.read()"""


def test_what_a_test_run_has_started_ends_when_the_run_is_killed() -> None:
    run = subprocess.Popen([sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                           cwd=Path(__file__).parent.parent, env={**os.environ, "PYTHONPATH": "."})
    assert run.stdin is not None and run.stdout is not None
    pids = [int(word) for word in run.stdout.readline().split()]
    assert len(pids) == 2 and all(map(is_alive, pids))
    run.kill()
    run.wait()
    wait_until(lambda: not any(map(is_alive, pids)), 60, "the processes of a killed run did not end")
    run.stdin.close()
    run.stdout.close()


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
