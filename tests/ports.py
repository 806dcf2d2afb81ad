"""Ports for tests that must name one before anybody listens there.

One of the kernel's choice can be given to any outgoing connection of this machine between the question and its use.
These lie below its range (ip_local_port_range) and below those of the sandboxes (safelaunch.sandbox.ports). An abstract
unix socket of its name keeps each for this process.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from safelaunch.sandbox.ports import FIRST_PORT

_held: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """So many ports on which nobody listens, and which no other test is given while this process lives."""
    found: list[int] = []
    for port in range(FIRST_PORT - 2000, FIRST_PORT):
        if len(found) == count:
            return found
        name = socket.socket(socket.AF_UNIX)
        with suppress(OSError), socket.socket() as probe:
            name.bind(f"\0safelaunch-test-port-{port}")
            _held.append(name)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)   # one in TIME_WAIT will do
            probe.bind(("", port))
            found.append(port)
    raise OSError(f"no {count} free ports below {FIRST_PORT}")
