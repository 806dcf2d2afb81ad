"""The search for the checkpoint that the next attempt goes on from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safelaunch.checkpoints.io import checkpoints
from safelaunch.checkpoints.latest import MOST_WHOLE
from safelaunch.checkpoints.model import Checkpoint
from safelaunch.checkpoints.resume import NO_STEP, is_usable
from safelaunch.decide.budget import nanback
from safelaunch.node import fresh
from safelaunch.run.nancut import NanCut, SavedAt
from safelaunch.supervisor.state.clock import Clock, Timer
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.resume import ResumePoint

TOUCH_S = 1.0             # a stat takes milliseconds on a folder that works
MOST_OLDER = 50           # checkpoints to fall back to
MOST_ALL = 5000           # behind resume.step
MOST_TOLD_SKIPPED = 5     # of one search
MOST_BEHIND = 50          # complete ones that are looked at where those behind a NaN do not count


def find_resume(
    here: Here, clock: Clock, journal: LeaderJournal, files: FolderPort, point: ResumePoint, say: Say
) -> None:
    """Find the newest complete checkpoint; a folder that does not answer in time counts as frozen until it does."""
    resume, state = here.plan.resume, journal.state
    if resume.dir is None:
        return
    folder = os.path.join(here.job.cwd, resume.dir)   # noqa: PTH118 - text only
    cut = nanback.first_cut(state, resume.step)
    if cut is None and here.plan.on_nan == "previous_checkpoint":
        cut = nanback.open_cut(state)
    left_out = sum(len(known.taken) for known in state.nan_cuts)
    most_whole = MOST_ALL if cut is not None and cut.attempt == nanback.BY_PERSON else (
        MOST_BEHIND + left_out if cut is not None or state.nan_cuts else MOST_WHOLE)

    def look() -> dict[str, Any]:
        fresh.see(folder)
        found = checkpoints.find(folder, resume.format, resume.pattern, most_whole)
        return _plain(found, max(MOST_OLDER, most_whole), has_times=most_whole > MOST_WHOLE)

    # A slow search gets time, a silent folder does not: 49 s (simulated: test_found "standby hears its leader each two
    # seconds however long the folder is frozen").
    is_doubtful = files.state.is_frozen or point.is_unknown
    if is_doubtful and files.ask(lambda: Path(folder).exists(), TOUCH_S).late:
        point.mark_unknown()
        return
    answer = files.ask(look, point.deadline_s)
    if answer.late:
        point.mark_late()
        return
    if answer.is_ok and answer.value is not None:
        found = [(Checkpoint(**one), t) for one, t in answer.value["found"]]
        found = [(one, t) for one, t in found if (one.path, one.step) not in state.rejected]
        without_step = [one.path for one, _ in found if not is_usable(resume.args, one.step)]
        usable = _before_nan(journal, say, cut,
                             [(one, t) for one, t in found if one.path not in without_step])
        point.note_found(usable, dict(found)[usable[0]] if usable and usable[0].step is None else 0.0)
        _tell_skipped(journal, point, say,
                      [*({"path": path, "reason": NO_STEP} for path in without_step), *answer.value["skipped"]])
    else:
        point.mark_unreadable()
        if clock.take_turn(Timer.UNREADABLE, 60.0):
            say(f"checkpoints in {folder} cannot be read: {answer.error}; trying again")


def _before_nan(
    journal: LeaderJournal, say: Say, cut: NanCut | None, found: Sequence[tuple[Checkpoint, float]]
) -> list[Checkpoint]:
    """Those that may be used after attempts whose loss was no finite number. Journalled before any is used."""
    seen = {one: SavedAt(one.path, one.step, t) for one, t in found}
    left = {one: at for one, at in seen.items() if not nanback.is_cut_off(journal.state, at)}
    if cut is not None:
        cut = nanback.cut_off(cut, list(left.values()))
        journal.record(journal.event(
            "checkpoints_cut", attempt=cut.attempt, step=cut.step, upto=cut.upto, is_left=cut.is_left,
            checkpoints=[list(one) for one in cut.taken]))
        left = {one: at for one, at in left.items() if at not in cut.taken}
        newest = next(iter(left), None)
        left_out = f"; not used: {len(cut.taken)} behind step {cut.upto}" if cut.taken else ""
        why = (f"resume.step is {cut.upto}; the newest checkpoint up to it" if cut.attempt == nanback.BY_PERSON else
               f"the loss of attempt {cut.attempt} was no finite number from step {cut.step} on; the newest checkpoint "
               "before that")
        say(f"{why} is {newest.path if newest is not None else 'none'}{left_out}")
    return list(left)


def _tell_skipped(journal: LeaderJournal, resume: ResumePoint, say: Say, skipped: Sequence[Mapping[str, str]]) -> None:
    """Journal and say, once each, which checkpoints are skipped, and what is taken instead."""
    for one in skipped[:MOST_TOLD_SKIPPED]:
        path, reason = one["path"], one["reason"]
        if (path, reason) not in journal.state.skipped:
            taken = resume.newest.path if resume.newest else None
            journal.record(journal.event("checkpoint_skipped", path=path, reason=reason, instead=taken))
            say(f"checkpoint {path} is skipped: {reason}; the newest complete one is {taken or 'none'}")


def _plain(found: Any, most: int, has_times: bool) -> dict[str, Any]:
    """A search's result as JSON values, each checkpoint with the time of its last file."""
    whole = [found.best, *found.older[:most]] if found.best else []
    return {"found": [({"path": one.path, "step": one.step, "format": one.format},
                       _finished_t(one.path) if has_times or one.step is None else 0.0) for one in whole],
            "skipped": [{"path": item.path, "reason": item.reason} for item in found.skipped]}


def _finished_t(path: str) -> float:
    """0 = it is just being removed, or does not answer."""
    with contextlib.suppress(OSError):
        return checkpoints.finished_t(path)
    return 0.0
