"""A port of this host that the next attempt is to listen on, held while its nodes try to reach it."""

from __future__ import annotations

import contextlib
import socket

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
        self._listener.setblocking(False)

    def take(self) -> None:
        """Let go of who has connected, so that others find room. Never blocks."""
        with contextlib.suppress(OSError):   # BlockingIOError: nobody is left
            while True:
                self._listener.accept()[0].close()

    def close(self) -> None:
        """Free the port."""
        self._listener.close()
