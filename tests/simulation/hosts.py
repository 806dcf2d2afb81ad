"""Hosts: machines with clocks that disagree, a disk of their own, and processes that stop, die and come back."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tests.simulation.clock import Clock, Process

if TYPE_CHECKING:
    from tests.simulation.folder import Mount


class Living(Protocol):
    """What lives on a host beside supervisors: guards with their ranks, srun."""

    def stopped(self) -> None:
        """The host stands still."""

    def resumed(self, gap_s: float) -> None:
        """It goes on."""

    def died(self) -> None:
        """It is gone."""


class Host:
    """One machine. `dead`: power loss; `is_stopped`: all of its processes stand still, its kernel answers."""

    mount: Mount

    def __init__(self, clock: Clock, name: str, disk: Path, mono_s: float) -> None:
        self.clock, self.name, self.disk = clock, name, disk
        self.dead = self.is_stopped = False
        self.wall_offset_s, self.mono_offset_s = 0.0, mono_s
        self.processes: list[Process] = []
        self.living: list[Living] = []
        self.boots = 0
        self.troubled_t = -1e9      # until when something was wrong with it
        self._stopped_t = 0.0
        self._pids = itertools.count(1000)
        self._ports = itertools.count(40000)

    @property
    def is_running(self) -> bool:
        """Its processes run."""
        return not (self.dead or self.is_stopped)

    def next_pid(self) -> int:
        """A process id."""
        return next(self._pids)

    def next_port(self) -> int:
        """A free port."""
        return next(self._ports)

    def stop(self) -> None:
        """Stand still as a whole: what a hung kernel or SIGSTOP of everything looks like from outside."""
        if self.is_running:
            self.is_stopped, self._stopped_t = True, self.clock.t
            for process in self.processes:
                process.hold()
            for one in list(self.living):
                one.stopped()

    def resume(self) -> None:
        """Go on."""
        if self.dead or not self.is_stopped:
            return
        self.is_stopped = False
        gap_s = self.clock.t - self._stopped_t
        for one in list(self.living):
            one.resumed(gap_s)
        self.processes = [process for process in self.processes if not process.dead]
        for process in self.processes:
            process.let_go()

    def die(self) -> None:
        """Power loss: nothing says goodbye, and the local disk is gone with the job that it was for."""
        if self.dead:
            return
        self.dead = True
        for process in self.processes:
            process.kill()
        for one in list(self.living):
            one.died()
        self.processes, self.living = [], []
        self.mount.died()
        if self.disk.exists():
            shutil.rmtree(self.disk)

    def boot(self) -> None:
        """Come back, empty."""
        if self.dead:
            self.dead = self.is_stopped = False
            self.boots += 1
            self.mono_offset_s = -self.clock.t
