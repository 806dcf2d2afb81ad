"""How other runs are doing, for a run that waits for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safelaunch.errors import RunFolderError
from safelaunch.node.host import short_host
from safelaunch.run.fold.folding import fold
from safelaunch.run.io import journal, local, runfolder
from safelaunch.run.io.runfolder import Run


def read_ends(run_dirs: Iterable[str]) -> dict[str, dict[str, Any]]:
    """How these runs have ended, and by which way they get their next jobs. Of local ones also the jobs that live on
    this machine (null: it is not theirs). {}: its folder is gone. A run that cannot be read has no entry. Runs in a
    child: it blocks where a folder does.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in run_dirs:
        with contextlib.suppress(OSError):
            try:
                found[name] = _end_of(runfolder.load(Path(name)))
            except RunFolderError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    found[name] = {}
    return found


def _end_of(run: Run) -> dict[str, Any]:
    events = journal.read(run.dir, steps_kept=1).events
    state, jobs = fold(events), None
    if run.plan.cluster == "local" and local.host_of(events) in ("", short_host()):
        jobs = local.living_jobs(run.dir, events)
    return {"ended": state.ended.how if state.ended else None, "why": state.ended.why if state.ended else "",
            "via": state.via, "local_jobs": jobs}
