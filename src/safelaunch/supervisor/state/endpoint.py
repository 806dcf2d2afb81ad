"""The endpoint for guards and standbys, and the fence for those that are silent."""

from __future__ import annotations

from safelaunch.base.timing import ping_every_s
from safelaunch.guard.io.control import ControlServer
from safelaunch.supervisor.io.fence import Fencer
from safelaunch.supervisor.state.ports import Here


class GuardEndpoint:
    """The guards' server with the run's token, and its fence."""

    server: ControlServer
    fencer: Fencer
    token: str

    @property
    def ping_every_s(self) -> float:
        """The time between two pings, which is longer where there are many guards."""
        return ping_every_s(len(self.server.guards))

    def open(self, token: str, server: ControlServer) -> None:
        """The first act of a start: the guards' leases run."""
        self.token, self.server = token, server

    def set_fencer(self, fencer: Fencer) -> None:
        """The plan is known by now."""
        self.fencer = fencer


def had_eligible(here: Here, guards: GuardEndpoint) -> bool:
    """Whether a supervisor on this host has let a standby in, or followed another: else nobody may take over."""
    return here.took_over is not None or any(node != here.job.host for node in guards.server.standbys)
