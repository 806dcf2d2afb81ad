"""Where guards and standbys reach this leader, and how it ends what they no longer answer for."""

from __future__ import annotations

from safelaunch.adapters.control import ControlServer
from safelaunch.adapters.fence import Fencer


class Door:
    """The guards' server with the run's token, and the fence behind it."""

    server: ControlServer
    fencer: Fencer
    token: str

    def opens(self, token: str, server: ControlServer) -> None:
        """First of all at a birth: the guards' leases run."""
        self.token, self.server = token, server

    def is_fenced_by(self, fencer: Fencer) -> None:
        """The plan is known by now."""
        self.fencer = fencer
