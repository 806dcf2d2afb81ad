"""Waits for a filesystem on which ranks sleep, before anything is ended or restarted.

A rank asleep in a write goes on when its filesystem does, and the training with it; killed, it does not end sooner. A
restart would hang in its first read or save (an incident: "the filesystem froze and became unresponsive"). One child
asks whether it still sleeps: it writes a byte there, and returns when the write does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

from safelaunch.run.io.storage import try_to_write
from safelaunch.slurm.io.slurm import Command, Result
from safelaunch.stacks.scene import HangVerdict
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.ports import Here, Say
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

ANSWERS_S = 3.0            # a write of one byte to a busy filesystem takes up to a second
FOREVER_S = 30 * 86400.0   # the job's own time limit comes first
NEAR_PYTHON = "/usr/bin/python3"


def wait_for_thaw(
    here: Here, clock: Clock, tasks: BackgroundTasks, say: Say, verdict: HangVerdict
) -> Generator[Command, Result | None, bool]:
    """True where this node had to wait for the filesystems that the verdict names; False where they answer here."""
    folders = list(dict.fromkeys(verdict.folders))
    if verdict.kind != "storage" or not folders:
        return False
    if here.plan.resume.dir is not None:
        folders.append(os.path.join(here.job.cwd, here.plan.resume.dir))   # noqa: PTH118 - text only
    python = NEAR_PYTHON if Path(NEAR_PYTHON).exists() else sys.executable
    start_s = clock.now_s
    command = here.world.command(try_to_write(folders, python), here.job.env, FOREVER_S)
    tasks.begin(Work.THAW, _say_that_it_waits(say, verdict, folders[0]))
    yield command
    tasks.cancel(Work.THAW)
    waited_s = clock.now_s - start_s
    if waited_s < ANSWERS_S:
        return False
    say.decision("thaw", f"{folders[0]} takes writes again after {waited_s:.0f} s: the training gets time to go on")
    return True


def trouble(tasks: BackgroundTasks) -> str | None:
    """What keeps the next attempt from starting; None where nothing is waited for."""
    return "a filesystem on which ranks slept takes no writes yet" if tasks.is_running(Work.THAW) else None


def _say_that_it_waits(say: Say, verdict: HangVerdict, folder: str) -> Step:
    """Runs as long as the wait does."""
    yield ANSWERS_S
    say.decision("frozen_storage", f"{verdict.summary}: waiting until {folder} takes writes again; nothing is ended "
                 "before, since a restart would hang there as well")
    while True:
        yield FOREVER_S
