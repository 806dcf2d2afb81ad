"""A fixture: submitit in this process, with safelaunch's executor on the local cluster and a home of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import submitit
from submitit.core import plugins

from safelaunch.run.io import runfolder
from tests.localruns import LocalRun

# Failures are repeated at once, and only where a test wants it.
QUICK = {"safelaunch_cluster": "local", "safelaunch_restart": {"max_restarts": 1, "backoff": "1s"}}


@pytest.fixture
def own_home(tmp_path: Path, local_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process with a home of its own and without Slurm; the runs that it submits end with the test."""
    if "safelaunch" not in plugins.get_executors():
        pytest.skip("this installation of safelaunch is older than its plugin: pip install --editable . once more")
    root = str(Path(__file__).parents[2])
    for name in set(os.environ) - set(local_env):
        monkeypatch.delenv(name)
    for name, value in {**local_env, "PYTHONPATH": root}.items():
        monkeypatch.setenv(name, value)
    yield tmp_path
    for folder, _, names in os.walk(tmp_path):   # it minds no folder that a job takes with it at its end
        if "run.json" in names:
            end_processes(LocalRun(tmp_path, Path(folder), local_env))


@pytest.fixture
def executor(own_home: Path) -> submitit.Executor:
    """An AutoExecutor whose runs end with the test."""
    made = submitit.AutoExecutor(own_home / "jobs", cluster="safelaunch")
    made.update_parameters(**QUICK)
    return made


def end_processes(run: LocalRun) -> None:
    """End what is left of a run."""
    if runfolder.load(run.run_dir).state().ended is None:
        (run.run_dir / "control" / "kill-now").touch()
    while left := run.pids():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
