"""Ports for programs that cannot be told to take any: the kernel hands none of these out by itself.

A port that was free a moment ago is one of an outgoing connection now, if it is of the kernel's own range (32768 on).
"""

from __future__ import annotations

import itertools
import os
import socket

FIRST, LAST = 30_000, 32_767   # above those of attempts (20000 to 29999), below the kernel's
_turns = itertools.count()


def free_port() -> int:
    """A port of loopback on which nobody listens; others of this process, and processes beside it, get other ones."""
    count = LAST - FIRST + 1
    for number in range(count):
        port = FIRST + (os.getpid() * 37 + next(_turns) + number) % count
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no port is free")
