"""All that a leader knows, in its parts, and the properties that every file uses."""

from __future__ import annotations

from pathlib import Path

from safelaunch.decide.facts.phase import phase_of
from safelaunch.decide.facts.seen import Observation
from safelaunch.guard.io.control import ControlServer
from safelaunch.guard.io.job import Allocation
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from safelaunch.slurm.via import HERE
from safelaunch.supervisor.io.world import World
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.course import Course
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.folder import FolderState
from safelaunch.supervisor.state.hangs import HangWatch
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nextjob import NextJob
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.ports import FolderPort, Here, TookOver
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.resume import ResumePoint
from safelaunch.supervisor.state.standbys import Standbys
from safelaunch.supervisor.state.tasks import BackgroundTasks, Work


class LeaderParts:
    """Each part is written by its own file only; the properties are for reading."""

    journal: LeaderJournal
    reach: Reach
    nodes: Nodes
    files: FolderPort
    next: NextJob

    def __init__(self, run_dir: Path, local: Path, job: Allocation, world: World,
                 took_over: TookOver | None = None) -> None:
        self.here = Here(run_dir, local, job, world, took_over)
        self.clock = Clock(world)
        self.tasks = BackgroundTasks(self.clock)
        self.course = Course()
        self.running = RunningAttempt(self.now_s)
        self.standbys = Standbys(self.now_s)
        self.hangs = HangWatch(self.now_s)
        self.resume = ResumePoint()
        self.guard_endpoint = GuardEndpoint()

    @property
    def plan(self) -> Plan:
        return self.here.plan

    @property
    def job(self) -> Allocation:
        return self.here.job

    @property
    def folder(self) -> FolderState:
        return self.files.state

    @property
    def server(self) -> ControlServer:
        return self.guard_endpoint.server

    @property
    def state(self) -> State:
        return self.journal.state

    @property
    def now_s(self) -> float:
        return self.clock.now_s

    @property
    def wants_standby(self) -> bool:
        is_possible = not self.job.is_local and self.plan.cluster != HERE
        return self.plan.standby and is_possible and len(self.job.nodes) > 1

    @property
    def is_unconfirmed(self) -> bool:
        """Another one may lead by now: no standby is heard, and the folder does not answer. In one that is gone nobody
        can claim to.
        """
        is_silent = self.standbys.is_contested and self.now_s - self.standbys.confirmed_s > self.plan.lease_s
        return is_silent and self.folder.gone is None

    def seen(self) -> Observation:
        """The facts for `decide`."""
        return Observation(
            now=self.clock.now, nodes=self.job.nodes, live=self.running.live, requests=self.folder.requests,
            ending=self.course.ending, limit_near=self.course.limit_near, partition=self.nodes.partition,
            lost=tuple(self.reach.lost.items()), frozen=self.folder.is_frozen or self.resume.is_unknown,
            trouble=self.folder.trouble, gone=self.folder.gone, suspended=self.running.was_stopped,
            resume=self.resume.newest, alone=self.reach.alone,
            missing=self.nodes.missing, before=self.next.before, unconfirmed=self.is_unconfirmed,
            measuring=self.tasks.is_running(Work.BENCH_NODES), ran_s=self.now_s - self.running.launched_s,
        )

    def enter_phase(self) -> None:
        """Note this supervisor's present phase."""
        is_over = self.state.ended is not None
        self.course.enter(phase_of(
            self.running.live, is_handing_over=self.tasks.is_running(Work.HAND_OVER) and not is_over,
            is_finishing=self.tasks.is_running(Work.FINISH) or (self.tasks.is_running(Work.HAND_OVER) and is_over),
            is_preserving=self.state.preserving_until is not None))
