"""A port of this host that an attempt is to listen on, held while its nodes try to reach it.

Standard library, Python 3.9.
"""

from __future__ import annotations

import socket
import time

BACKLOG = 1024   # the kernel takes less where net.core.somaxconn says so


class PortTrial:
    """Listens on all addresses; raises OSError for a port that is taken. Nothing is read from who connects."""

    def __init__(self, port: int) -> None:
        self.port = port
        # Both with SO_REUSEADDR, as torch's TCPStore has it: the last attempt's connections may be in TIME_WAIT.
        if socket.has_dualstack_ipv6():
            self._listener = socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG,
                                                  dualstack_ipv6=True)
        else:
            self._listener = socket.create_server(("", port), backlog=BACKLOG)

    def take(self, for_s: float = 0.0) -> None:
        """Let go of who has connected, so that others find room, and of who connects within `for_s` seconds."""
        until_s = time.monotonic() + for_s
        while True:
            self._listener.settimeout(max(0.0, until_s - time.monotonic()))   # 0: never blocks
            try:
                self._listener.accept()[0].close()
            except OSError:   # nobody is there, or it has gone again
                if time.monotonic() >= until_s:
                    return

    def close(self) -> None:
        """Free the port."""
        self._listener.close()
