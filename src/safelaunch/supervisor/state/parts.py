"""All that a leader knows, in its parts, and the properties that every file uses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from safelaunch.base.io import owners
from safelaunch.decide.facts.phase import phase_of
from safelaunch.decide.facts.seen import Live, Observation
from safelaunch.guard.io.control import ControlServer
from safelaunch.guard.io.job import Allocation
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan
from safelaunch.script.laterjobs import in_partition
from safelaunch.slurm.via import HERE
from safelaunch.supervisor.io.attempt import AttemptProcess
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
from safelaunch.supervisor.state.ports import FolderPort
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.resume import ResumePoint
from safelaunch.supervisor.state.standbys import Standbys
from safelaunch.supervisor.state.tasks import BackgroundTasks, Work


class TookOver(NamedTuple):
    """Who led this job before (host), when it was last heard (monotonic seconds of this node), and the other standbys.
    """

    host: str
    heard_s: float
    eligible: tuple[str, ...] = ()


class Here(NamedTuple):
    """Where this leader runs, for which run, and as whom."""

    run_dir: Path
    local: Path
    job: Allocation
    world: World
    took_over: TookOver | None   # nothing else ends the job where this process was its standby
    user: str


class LeaderParts:
    """Each part is written by its own file only; the properties are for reading."""

    plan: Plan
    journal: LeaderJournal
    reach: Reach
    nodes: Nodes
    files: FolderPort

    def __init__(self, run_dir: Path, local: Path, job: Allocation, world: World,
                 took_over: TookOver | None = None) -> None:
        self.here = Here(run_dir, local, job, world, took_over, owners.name_of(os.geteuid()))
        self.clock = Clock(world)
        self.tasks = BackgroundTasks(self.clock)
        self.course = Course()
        self.running = RunningAttempt(self.now_s)
        self.standbys = Standbys(self.now_s)
        self.hangs = HangWatch(self.now_s)
        self.resume = ResumePoint()
        self.guard_endpoint = GuardEndpoint()
        self.next = NextJob()

    @property
    def run_dir(self) -> Path:
        return self.here.run_dir

    @property
    def local(self) -> Path:
        return self.here.local

    @property
    def job(self) -> Allocation:
        return self.here.job

    @property
    def world(self) -> World:
        return self.here.world

    @property
    def folder(self) -> FolderState:
        return self.files.state

    @property
    def server(self) -> ControlServer:
        return self.guard_endpoint.server

    @property
    def live(self) -> Live | None:
        return self.running.live

    @property
    def process(self) -> AttemptProcess | None:
        return self.running.process

    @property
    def ending(self) -> str | None:
        return self.course.ending

    @property
    def state(self) -> State:
        return self.journal.state

    def follow(self, plan: Plan) -> None:
        """The run's plan, as this leader uses it: with the partition of its job, which may have been changed."""
        self.plan = plan._replace(sbatch=in_partition(plan.sbatch, self.job.env.get("SLURM_JOB_PARTITION", "")))

    @property
    def now(self) -> float:
        return self.clock.now

    @property
    def now_s(self) -> float:
        return self.clock.now_s

    @property
    def wants_standby(self) -> bool:
        is_possible = not self.job.is_local and self.plan.cluster != HERE
        return self.plan.standby and is_possible and len(self.job.nodes) > 1

    @property
    def had_eligible(self) -> bool:
        """Whether a supervisor on this host has let a standby in, or followed another: else nobody may take over."""
        return self.here.took_over is not None or any(node != self.job.host for node in self.server.standbys)

    @property
    def is_unconfirmed(self) -> bool:
        """Another one may lead by now: no standby is heard, and the folder does not answer. In one that is gone nobody
        can claim to.
        """
        is_silent = self.standbys.is_contested and self.now_s - self.standbys.confirmed_s > self.plan.lease_s
        return is_silent and self.folder.gone is None

    @property
    def attempt(self) -> Live:
        return self.running.now

    def seen(self) -> Observation:
        """The facts for `decide`."""
        return Observation(
            now=self.now, nodes=self.job.nodes, live=self.live, requests=self.folder.requests, ending=self.ending,
            limit_near=self.course.limit_near, partition=self.nodes.partition, lost=tuple(self.reach.lost.items()),
            frozen=self.folder.is_frozen or self.resume.is_unknown, trouble=self.folder.trouble,
            gone=self.folder.gone,
            suspended=self.running.was_stopped, resume=self.resume.newest, alone=self.reach.alone,
            missing=self.nodes.missing, before=self.next.before, unconfirmed=self.is_unconfirmed,
            measuring=self.tasks.is_running(Work.BENCH_NODES), ran_s=self.now_s - self.running.launched_s,
        )

    def enter_phase(self) -> None:
        """Note this supervisor's present phase."""
        is_over = self.state.ended is not None
        self.course.enter(phase_of(
            self.live, is_handing_over=self.tasks.is_running(Work.HAND_OVER) and not is_over,
            is_finishing=self.tasks.is_running(Work.FINISH) or (self.tasks.is_running(Work.HAND_OVER) and is_over),
            is_preserving=self.state.preserving_until is not None))
