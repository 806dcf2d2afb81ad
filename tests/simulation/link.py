"""The real connection of a guard or a standby (node/guard/link) on the simulated network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safelaunch.node.guard.link import RETRY_S, Link
from tests.simulation.net import Socket, as_socket


class SimLink(Link):
    """Only where its bytes come from, and the time, are made up."""

    def __init__(self, knock: Callable[[tuple[str, int]], Socket], clock: Callable[[], float], control: str,
                 launch_address: str | None, token: str, who: dict[str, Any]) -> None:
        super().__init__(control, launch_address, token, who, clock)
        self._knock = knock

    def _connect(self, now: float) -> None:
        self.try_at, self.began_at = now + RETRY_S, now
        self.sock = as_socket(self._knock(self.address))

    def _finish_connect(self, sock: Any) -> bool:
        number = sock.getsockopt(0, 0)
        if number:
            self._fail(number)
            return False
        self.connected = sock.is_connected
        return self.connected
