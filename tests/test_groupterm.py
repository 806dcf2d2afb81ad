"""A TERM to the whole process group of a test run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandboxes import wait_until

# The short sleeps: a stop of xdist's interrupts the test's main thread, and no sleep that has begun.
TESTS = """import os, pathlib, signal, subprocess, time
import pytest
HERE = pathlib.Path(__file__).parent

@pytest.fixture
def sandbox():
    yield
    (HERE / "ended").touch()

def test_long(sandbox):
    for _ in range(50):   # a TERM at once, and the fork has the default already
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    assert program.wait() == -signal.SIGTERM
    (HERE / "up").touch()
    while True:
        time.sleep(0.1)
"""


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The nested pytest, which cleans up nothing where it fails: its group is killed."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for run in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()


@pytest.mark.parametrize("workers", [0, 1], ids=["no worker", "a worker"])
def test_fixtures_clean_up_after_a_term_to_the_whole_group(
    tmp_path: Path, runs: list[subprocess.Popen[bytes]], workers: int
) -> None:
    (tmp_path / "test_nested.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist.plugin", "-p", "tests.groupterm",
             "-n", str(workers), "--rootdir", str(tmp_path), str(tmp_path / "test_nested.py")]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(Path(__file__).parent.parent)}
    said = tmp_path / "said"
    with said.open("wb") as output:
        run = subprocess.Popen(words, cwd=tmp_path, env=env, start_new_session=True, stdout=output, stderr=output)
    runs.append(run)
    wait_until(lambda: (tmp_path / "up").exists() or run.poll() is not None, 60, "the nested test did not start")
    assert run.poll() is None, said.read_text()
    os.killpg(run.pid, signal.SIGTERM)
    run.wait(timeout=60)
    wait_until((tmp_path / "ended").exists, 60, "the fixture did not clean up")
