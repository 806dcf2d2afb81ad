"""The search for the checkpoint that the next attempt goes on from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safelaunch.adapters import checkpoints
from safelaunch.core.checkpoints.model import Checkpoint
from safelaunch.node import fresh
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.clock import Timer

TOUCH_S = 1.0             # a stat takes milliseconds on a folder that works
MAX_OLDER = 50            # checkpoints to fall back to
MOST_TOLD_SKIPPED = 5     # of one search


def find_resume(lead: Leader) -> None:
    """Find the newest complete checkpoint; a folder that does not answer in time counts as frozen until it does."""
    resume = lead.plan.resume
    if resume.dir is None:
        return
    folder = os.path.join(lead.job.cwd, resume.dir)   # noqa: PTH118 - text only

    def look() -> dict[str, Any]:
        fresh.see(folder)
        return _plain(checkpoints.find(folder, resume.format, resume.pattern))

    # A slow search gets time, a silent folder does not: 49 s (simulated: test_found "standby hears its leader each two
    # seconds however long the folder is frozen").
    is_doubtful = lead.folder.is_frozen or lead.resume.is_unknown
    if is_doubtful and lead.ask_folder(lambda: Path(folder).exists(), TOUCH_S).late:
        lead.resume.does_not_answer()
        return
    answer = lead.ask_folder(look, lead.resume.deadline_s)
    if answer.late:
        lead.resume.is_late()
        return
    if answer.is_ok and answer.value is not None:
        lead.resume.is_found([one for one in (Checkpoint(**one) for one in answer.value["found"])
                              if (one.path, one.step) not in lead.state.rejected])
        _tell_skipped(lead, answer.value["skipped"])
    else:
        lead.resume.is_unreadable()
        if lead.clock.is_due(Timer.UNREADABLE, 60.0):
            lead.say(f"checkpoints in {folder} cannot be read: {answer.error}; trying again")


def _tell_skipped(lead: Leader, skipped: Sequence[Mapping[str, str]]) -> None:
    """Journal and say, once each, which checkpoints are skipped, and what is taken instead."""
    for one in skipped[:MOST_TOLD_SKIPPED]:
        path, reason = one["path"], one["reason"]
        if (path, reason) not in lead.state.skipped:
            taken = lead.resume.newest.path if lead.resume.newest else None
            lead.record(lead.writer.event("checkpoint_skipped", path=path, reason=reason, instead=taken))
            lead.say(f"checkpoint {path} is skipped: {reason}; the newest complete one is {taken or 'none'}")


def _plain(found: Any) -> dict[str, Any]:
    """A search's result as JSON values."""
    whole = [found.best, *found.older[:MAX_OLDER]] if found.best else []
    return {"found": [{"path": one.path, "step": one.step, "format": one.format} for one in whole],
            "skipped": [{"path": item.path, "reason": item.reason} for item in found.skipped]}
