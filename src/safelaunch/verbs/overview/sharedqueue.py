"""One question to squeue for all screens of a user on this host: `status --watch` and `top` take each other's answers.

They are kept beside the list of runs. Losing them costs a question.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from safelaunch.base.io import durable, sharedfile
from safelaunch.base.io.probe import run_in_child
from safelaunch.run.io import registry
from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.verbs.overview import runlist

KEPT_S = 30.0     # a screen asks each minute
HOME_S = 1.0
MOST_BYTES = 4 << 20


def ask(of_all: bool = False) -> SchedulerAnswer:
    """As runlist.ask_slurm, or what another screen was told within KEPT_S."""
    whose = [os.uname().nodename, os.environ.get("SLURM_CONF", ""), os.environ.get("PATH", ""), of_all]
    kept = run_in_child(lambda: _read(whose), HOME_S).value
    with contextlib.suppress(TypeError):   # of another version
        if isinstance(kept, dict):
            return SchedulerAnswer(tuple(QueuedJob(**job) for job in kept["jobs"]), asked_t=float(kept["t"]))
    word = runlist.ask_slurm(of_all)
    if word.jobs is not None:
        jobs = [job._asdict() for job in word.jobs]
        run_in_child(lambda: _write({"t": word.asked_t, "whose": whose, "jobs": jobs}), HOME_S)
    return word


def _file() -> Path:
    return registry.file().with_name("squeue.json")


def _read(whose: list[Any]) -> Any:
    """The last answer; None = it is too old, or another's."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        kept = sharedfile.read_json(_file(), MOST_BYTES)
        if kept["whose"] == whose and 0 <= time.time() - kept["t"] < KEPT_S:
            return kept
    return None


def _write(kept: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        _file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.put(_file(), json.dumps(kept).encode(), sync=lambda _: None)
