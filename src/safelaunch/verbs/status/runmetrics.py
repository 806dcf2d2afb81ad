"""The figures of runs for Prometheus, out of their journals; Slurm is not asked."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safelaunch.base.io import durable, owners
from safelaunch.errors import RunFolderError
from safelaunch.run.fold.folding import fold
from safelaunch.run.io import registry, runfolder
from safelaunch.status import metrics, shares
from safelaunch.status.metrics import MeteredRun, MetricSample
from safelaunch.verbs.common import runs
from safelaunch.verbs.common.talk import Say
from safelaunch.verbs.overview import runlist

FILE_MODE = 0o644   # node_exporter runs as a user of its own


def collect(which: Sequence[str], say: Say) -> str:
    """The text: of these runs, else of yours that go on or ended within a day. What cannot be read is reported."""
    now = time.time()
    if which:
        folders = [str(runs.find_folder(name)) for name in which]
    else:
        known = registry.parse(runs.ask(registry.raw, "your list of runs"))
        folders = [str(one.dir) for one in known if one.ended_t is None or now - one.ended_t < runlist.RECENT_S]
    found, silent = runlist.visit(folders, lambda dir: _look(dir, now, bool(which)))
    for folder in silent:
        say(f"{folder} does not answer: its filesystem is frozen or slow")
    read: list[MetricSample] = []
    for folder, one in found.items():
        if one is not None and "error" in one:
            say(f"{folder} cannot be read: {one['error']}")
        elif one is not None:
            read += [MetricSample(*sample) for sample in one["samples"]]
    return metrics.render(read)


def _look(dir: str, now: float, is_named: bool) -> dict[str, Any] | None:
    """A run's samples, in a child; None = the folder has gone, or it ended long ago and nobody named it."""
    try:
        run = runfolder.load(Path(dir))
        events = run.journal().events
    except (RunFolderError, *runlist.FAULTS) as error:
        return runlist.in_words(error)
    state = fold(events)
    if state.ended is not None and now - state.ended.t >= runlist.RECENT_S and not is_named:
        return None
    metered = MeteredRun(run.plan.name, run.plan.run_id, dir, run.cluster, run.plan.restart.max_restarts, state,
                         shares.settle(events, state, now, state.attempt.step if state.attempt else None), now)
    return {"samples": metrics.samples(metered)}


def store(folder: str, text: str) -> Path:
    """Replace this user's file in a folder of node_exporter's textfile collector; raises RunFolderError."""
    path = Path(folder) / f"safelaunch-{owners.name_of(os.getuid())}.prom"
    try:
        durable.put(path, text.encode(), FILE_MODE, for_all=True)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be written: {error.strerror}",
                             hint="--textfile names a folder that you can write to") from error
    return path
