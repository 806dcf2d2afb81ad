"""safelaunch stop: end a run for good by its kill switch; a job in the queue is cancelled."""

from __future__ import annotations

import click

from safelaunch.verbs.common import lostfolder, runs, stopping, talk
from safelaunch.verbs.status import sweepruns as sweeps


@click.command()
@runs.run_argument
@click.option("--now", is_flag=True, help="Kill at once: the training gets no time to save.")
@click.option("--checkpoint", is_flag=True, help="End it at its next complete checkpoint, so that no step is lost.")
@runs.duration_option("--within", "within_s", help="With --checkpoint: the longest wait (2h); else kill_switch.grace.")
def command(which: str | None, now: bool, checkpoint: bool, within_s: float | None) -> int:
    """End a run, or all runs of a sweep, for good: no restart follows, and queued jobs go. Any member of
    kill_switch.group may do it.
    """
    name = stopping.stop_name(now, checkpoint)
    if points := runs.find_sweep(which):
        return sweeps.stop(points, name, within_s, talk.say)
    try:
        folder = runs.find_folder(which)   # also one that may not be read
    except lostfolder.LostFolderError as lost:
        return lostfolder.stop(lost, talk.say)
    return stopping.stop(folder, name, within_s, talk.say)
