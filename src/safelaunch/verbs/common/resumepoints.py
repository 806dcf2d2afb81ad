"""Where a run's checkpoints are, and what is there now: asked in a child, because the folder may be frozen."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safelaunch.checkpoints.io import checkpoints
from safelaunch.checkpoints.latest import MOST_WHOLE
from safelaunch.checkpoints.model import JudgedCheckpoint
from safelaunch.checkpoints.resume import NO_STEP, is_usable
from safelaunch.errors import UsageError
from safelaunch.launch.settings import Settings
from safelaunch.run.fold.state import State
from safelaunch.run.io.runfolder import Run
from safelaunch.run.nancut import SavedAt
from safelaunch.verbs.common import runs

BEHIND_NAN = "it was saved behind a loss that was no finite number (on_nan)"
BEHIND_STEP = "it is behind the step to start from (resume.step)"
MOST_NAMED = 20   # steps, in a refusal
MOST_ALL = 5000   # complete ones that are looked at for a step


class CheckpointPlace(NamedTuple):
    """A folder of checkpoints and how it is read. `rejected`: (path, step) that an attempt could not load. `cut_off`:
    saved behind a loss that was no finite number. `args`: as resume.args.
    """

    folder: str
    format: str = "auto"
    pattern: str | None = None
    rejected: frozenset[tuple[str, int | None]] = frozenset()
    cut_off: frozenset[SavedAt] = frozenset()
    args: str = ""
    behind: str = BEHIND_NAN   # why those of cut_off are not used

    @property
    def refused(self) -> int:
        """How many complete ones may be in the way of the one that is used."""
        return len(self.rejected) + len(self.cut_off)


class ResumePoints(NamedTuple):
    """What is there, the newest first."""

    place: CheckpointPlace
    judged: tuple[JudgedCheckpoint, ...]

    @property
    def next(self) -> JudgedCheckpoint | None:
        """The one that an attempt which starts now would resume from."""
        return next((one for one in self.judged if one.reason is None), None)


def of_run(run: Run, state: State | None = None) -> CheckpointPlace | None:
    """Where the run's checkpoints are; None without resume.dir. `state`: where it is known already."""
    resume = run.plan.resume
    if resume.dir is None:
        return None
    cwd = str(run.meta.get("cwd", run.dir))
    folder = str(Path(cwd, dict(run.plan.sbatch).get("chdir") or "", resume.dir))
    known = state or run.state(partly=True)
    cut_off = frozenset(one._replace(path=os.path.normpath(one.path)) for cut in known.nan_cuts for one in cut.taken)
    behind = BEHIND_NAN if any(cut.attempt for cut in known.nan_cuts) else BEHIND_STEP
    return CheckpointPlace(folder, resume.format, resume.pattern, frozenset(known.rejected), cut_off, resume.args,
                           behind)


def of_settings(settings: Settings) -> CheckpointPlace | None:
    """Where a run that is submitted here, with these settings, will search; None without resume.dir."""
    resume, folder = settings.resume, settings.resume_folder(str(Path.cwd()))
    return None if folder is None else CheckpointPlace(str(Path(folder)), resume.format, resume.pattern,
                                                       args=resume.args)


def look(place: CheckpointPlace, most_whole: int = MOST_WHOLE, most_cpu_s: float = 0.0) -> ResumePoints:
    """What is there; raises RunFolderError when the folder cannot be read or does not answer in time."""
    return as_seen(place, runs.ask(lambda: survey(place, most_whole), place.folder, most_cpu_s))


def survey(place: CheckpointPlace, most_whole: int) -> list[dict[str, Any]]:
    """What is there, as plain values: for a child."""
    paths = {one.path for one in place.cut_off}
    found = checkpoints.survey(place.folder, place.format, place.pattern, most_whole)
    return [(_cut(one, place) if os.path.normpath(one.path) in paths else one)._asdict() for one in found]


def _cut(one: JudgedCheckpoint, place: CheckpointPlace) -> JudgedCheckpoint:
    with contextlib.suppress(OSError):
        at = SavedAt(os.path.normpath(one.path), one.step, checkpoints.finished_t(one.path))
        if one.reason is None and at in place.cut_off:
            return one._replace(reason=place.behind)
    return one


def as_seen(place: CheckpointPlace, judged: Iterable[Mapping[str, Any]]) -> ResumePoints:
    """What a child has found."""
    return ResumePoints(place, tuple(_weigh(JudgedCheckpoint(**one), place) for one in judged))


def _weigh(one: JudgedCheckpoint, place: CheckpointPlace) -> JudgedCheckpoint:
    """The same, or refused because an attempt could not load it, or `resume.args` cannot name it."""
    if one.reason is None and not is_usable(place.args, one.step):
        return one._replace(reason=NO_STEP)
    if one.reason is not None or (one.path, one.step) not in place.rejected:
        return one
    return JudgedCheckpoint(one.path, one.step, one.format, one.changed_s, "an attempt could not load it")


def of_step(points: ResumePoints, step: int) -> tuple[JudgedCheckpoint, int]:
    """The complete checkpoint of a step, and how many are behind it. Raises UsageError, with those that there are."""
    whole = [one for one in points.judged if one.reason is None]
    found = next((one for one in whole if one.step == step), None)
    if found is None:
        why = next((f" ({one.reason})" for one in points.judged if one.step == step), "")
        steps = sorted({one.step for one in whole if one.step is not None})
        there = ", ".join(map(str, steps[-MOST_NAMED:])) or "none"
        raise UsageError(f"resume.step={step}: {points.place.folder} has no complete checkpoint of step {step}{why}",
                         hint=f"complete are: {'… ' if len(steps) > MOST_NAMED else ''}{there}; see: safelaunch "
                              f"checkpoints {points.place.folder}")
    return found, sum(one.step is None or one.step > step for one in whole)


def within(points: ResumePoints, path: str) -> ResumePoints:
    """Only candidates that are that path, contain it, or are in it."""
    wanted = os.path.abspath(path)   # noqa: PTH100 - text only: the folder may be frozen
    kept = (one for one in points.judged if _is_in(one.path, wanted) or _is_in(wanted, one.path))
    return ResumePoints(points.place, tuple(kept))


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
