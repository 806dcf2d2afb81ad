"""Deleting old runs: first a plan of what would go and what stays, then, if it is wanted, the act."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safelaunch.base.io import removal
from safelaunch.base.io.probe import run_in_child
from safelaunch.errors import RunFolderError, UsageError
from safelaunch.run.io import ownership, registry, runfolder, runpath
from safelaunch.verbs.common import resumepoints, runs
from safelaunch.verbs.control import cleanplan as cleaning
from safelaunch.verbs.control.cleanplan import OldRun
from safelaunch.verbs.overview.runlist import FAULTS

LOOK_S = 10.0       # for one run's folder and the size of what is in it
REMOVE_S = 600.0    # ... for its deletion: some filesystems take milliseconds for each file
LAST = ("journal", "run.json")   # while they are there, a deletion that was cut off can be repeated


class CleanPlan(NamedTuple):
    """Runs that may go, and those that stay, each with its reason; of runs that were named, the reason is an error."""

    go: tuple[OldRun, ...]
    kept: tuple[tuple[OldRun, str], ...]
    with_checkpoints: bool

    @property
    def bytes(self) -> int:
        return sum(run.bytes for run in self.go)


def plan(named: Sequence[str], older_s: float, *, with_checkpoints: bool) -> CleanPlan:
    """What would be deleted: of the runs that are named, else of all of mine. Raises UsageError for a named one that
    may not go, and RunFolderError.
    """
    now, wanted = time.time(), [os.path.realpath(runs.find_folder(one)) for one in named]
    entries = {os.path.realpath(entry.dir): entry for entry in registry.parse(
        runs.ask(lambda: registry.raw(), "your list of runs"))}
    found = [_look(path, with_checkpoints, entries[path].resume if path in entries else "")
             for path in dict.fromkeys((*entries, *wanted))]
    there = [run for run in found if run is not None]
    go, kept = [], []
    for run in there:
        if wanted and run.dir not in wanted:
            continue
        why = cleaning.why_kept(run, there, now, older_s, with_checkpoints=with_checkpoints)
        if why is None:
            go.append(run)
        else:
            kept.append((run, why))
    if wanted and kept:
        run, why = kept[0]
        raise UsageError(f"{run.dir} is not deleted: {why}", hint="younger ones, too: --older 1h")
    return CleanPlan(tuple(go), tuple(kept), with_checkpoints)


def remove(run: OldRun, *, with_checkpoints: bool) -> str:
    """Delete what the plan says of a run; why that failed, or "". It is looked at anew right before."""
    answer = run_in_child(lambda: _remove(run, with_checkpoints), REMOVE_S)
    return str(answer.value) if answer.is_ok else answer.error or f"it took more than {REMOVE_S:.0f} s"


def _look(path: str, with_checkpoints: bool, resume: str) -> OldRun | None:
    """A run as its folder shows it; None = there is none any more."""
    answer = run_in_child(lambda: _facts(path, with_checkpoints), LOOK_S)
    if answer.is_ok:
        return None if answer.value is None else OldRun(**{
            **answer.value, "after": tuple(answer.value["after"]), "left": tuple(answer.value["left"])})
    return OldRun(path, trouble="its folder does not answer" if answer.late else answer.error or "?", resume=resume)


def _facts(path: str, with_checkpoints: bool) -> dict[str, Any] | None:
    if not runpath.is_run_folder(Path(path)):
        return None
    try:
        trouble = ownership.why_not_own_run(Path(path)) or ""
        run = runfolder.load(Path(path))
        state = run.state()
        place = resumepoints.of_run(run, state)
    except (RunFolderError, *FAULTS) as error:
        return OldRun(path, trouble=str(error))._asdict()
    ended = state.ended
    found = OldRun(path, run.plan.name, ended.how if ended else "", ended.t if ended else 0.0, trouble,
                   os.path.realpath(place.folder) if place is not None else "",
                   tuple(os.path.realpath(one.run_dir) for one in run.plan.after))
    if trouble or ended is None:
        return found._asdict()
    try:
        folder = removal.open_own(path)
        try:
            names = _going(found, folder, with_checkpoints)
            left = tuple(sorted(set(removal.names_in(folder)) - set(names)))
            return found._replace(bytes=sum(removal.size_of(folder, one) for one in names), left=left)._asdict()
        finally:
            os.close(folder)
    except RunFolderError as error:
        return found._replace(trouble=error.message)._asdict()


def _going(run: OldRun, folder: int, with_checkpoints: bool) -> list[str]:
    """The entries that go, in order."""
    names = [name for name in removal.names_in(folder) if cleaning.is_own_name(name)]
    if with_checkpoints and cleaning.may_go_with_checkpoints(run):
        names += [name for name in removal.names_in(folder) if name == run.resume.rpartition("/")[2]]
    return sorted(names, key=lambda name: (name in LAST, name))


def _remove(run: OldRun, with_checkpoints: bool) -> str:
    try:
        now = _facts(run.dir, with_checkpoints)
        if now is None or (now["how"], now["ended_t"], now["trouble"]) != (run.how, run.ended_t, ""):
            return "it is not what it was when the plan was made"
        folder = removal.open_own(run.dir)
        try:
            for name in _going(run, folder, with_checkpoints):
                removal.remove(folder, name)
            is_empty = not removal.names_in(folder)
        finally:
            os.close(folder)
        if is_empty:
            Path(run.dir).rmdir()
    except RunFolderError as error:
        return error.message
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    return ""
