"""What is known of the way to the run's next job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from safelaunch.decide.facts.after import RunBefore
from safelaunch.supervisor.io.successor import Successor
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.tasks import BackgroundTasks


class NextJob:
    """Slurm's commands for it, how often Slurm has refused to change it, and the runs that come before this one."""

    successor: Successor

    def __init__(self, check_folder: Callable[[], bool]) -> None:
        self.check_folder = check_folder   # right before each submission
        self.refused_changes = 0
        self.later: Mapping[str, str] = {}   # what a person has changed for later jobs (script.laterjobs)
        self.before: tuple[RunBefore, ...] | None = None   # None = not known yet

    def set_successor(self, successor: Successor) -> None:
        """The plan is known by now."""
        self.successor = successor

    def note_before(self, before: tuple[RunBefore, ...]) -> None:
        """How they are doing is known."""
        self.before = before

    def note_later(self, later: Mapping[str, str]) -> None:
        """What a person wants of later jobs."""
        self.later = later

    def note_refused_change(self) -> None:
        """Slurm has refused to change the next job."""
        self.refused_changes += 1


class NextSlot(NamedTuple):
    """The place behind this job in Slurm's queue: what waits there is asked of Slurm, journalled and told."""

    here: Here
    journal: LeaderJournal
    next_job: NextJob
    say: Say


class Queueing(NamedTuple):
    """The course of the next job: into the queue, and watched there, while this job goes on and its folder is there."""

    slot: NextSlot
    clock: Clock
    files: FolderPort
    course: Course
    tasks: BackgroundTasks
