"""The TCP ports of sandboxes, taken in blocks before any daemon listens and kept until the sandbox goes down.

They lie below the usual ephemeral range (32768 and up on Linux), where srun and everybody else take theirs. A block is
taken by binding an abstract unix socket of its name (unix(7)). All who share the ports see that name, also chroots and
containers on the host's network, which see neither files nor processes of each other. The name is free again when
the last process that has the socket ends: the sandbox's munged inherits it.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass

from safelaunch.errors import SandboxError

FIRST_PORT, LAST_PORT, BLOCK = 12000, 32000, 8


@dataclass(frozen=True)
class PortHold:
    """Ports from `first` on; they are nobody else's as long as a process has these sockets open."""

    first: int
    sockets: tuple[socket.socket, ...]

    def close(self) -> None:
        """Leave the ports to those who have inherited the sockets."""
        for one in self.sockets:
            one.close()


def take(count: int) -> PortHold:
    """`count` ports in a row on which nobody listens; SandboxError where there are none."""
    held: list[socket.socket] = []
    for first in range(FIRST_PORT, LAST_PORT, BLOCK):
        one = _hold(first)
        if one is None:
            PortHold(first, tuple(held)).close()
            held = []
            continue
        held.append(one)
        if len(held) * BLOCK >= count:
            return PortHold(first - (len(held) - 1) * BLOCK, tuple(held))
    PortHold(LAST_PORT, tuple(held)).close()
    raise SandboxError(f"no {count} free ports in a row between {FIRST_PORT} and {LAST_PORT}")


def _hold(first: int) -> socket.socket | None:
    """The socket that stands for a block; None where it is somebody's, or somebody listens on a port of it."""
    one = socket.socket(socket.AF_UNIX)
    with suppress(OSError):
        one.bind(f"\0safelaunch-sandbox-{first}")
        if all(_is_free(port) for port in range(first, first + BLOCK)):
            return one
    one.close()
    return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT will do
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
