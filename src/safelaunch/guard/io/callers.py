"""Who connects to the guards' server: callers that have proved themselves, and strangers, who get little room."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

from safelaunch.base.timing import OWES_S
from safelaunch.node.guard import protocol


@dataclass(eq=False)
class Guard:
    """One task's guard as the leader knows it; times are monotonic seconds."""

    node: str
    task: int
    attempt: int
    tasks: int | None = None        # of its step, where a script's own srun has started it; None: not told
    connection: Connection | None = None
    heard_s: float = 0.0
    pinged_s: float = 0.0           # the last message that it may have heard: its lease counts from here at the latest
    asked_s: float = 0.0            # the last ping: an order is answered by no pong
    closed_s: float | None = None   # since when it is not connected
    code: int | None = None
    signal: int | None = None
    ended_s: float = 0.0            # when it told so
    gone: bool = False              # the launcher and all that came of it have left the node
    sure_s: float = -1e9            # of a standby: when the last ping was sent that it has answered
    kernel: tuple[tuple[float, str], ...] = ()   # kernel lines of its node until its task ended badly: when, text

    def owes_answer(self, now_s: float) -> bool:
        """Whether a ping waits for its answer for so long that another one would only begin the lease of a silent node
        anew: the ping that it has not answered wakes it up as well.
        """
        return self.asked_s > self.heard_s and now_s - self.heard_s > OWES_S

    @property
    def is_of_step(self) -> bool:
        """Whether it guards a task of a script's own srun, whose end is not the attempt's."""
        return self.task >= protocol.STEP_TASKS

    @property
    def step(self) -> int:
        """0, or which of a script's own sruns has started its task."""
        return self.task // protocol.STEP_TASKS

    @property
    def has_answered(self) -> bool:
        """Whether this standby has answered a ping since it connected, so that it knows that it is eligible."""
        return self.connection is not None and self.sure_s > self.connection.born_s


@dataclass(eq=False)
class Connection:
    """A socket with its buffers; `guard` and `session` None until it has proved itself."""

    sock: socket.socket
    address: str        # the caller's
    born_s: float
    nonce: str
    guard: Guard | None = None
    session: protocol.Session | None = None
    inbox: bytes = b""
    outbox: bytes = field(default=b"", repr=False)


class Strangers:
    """Connections that have proved nothing yet, by address; `most` of them at once.

    When one more comes, the oldest connection of the address with the most goes: so one caller keeps nobody else out.
    One of the job's own nodes goes last.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._own: set[str] = set()
        self._waiting: dict[str, dict[Connection, None]] = {}   # the oldest first
        self._count = 0

    def keep_for(self, addresses: Iterable[str]) -> None:
        """These are addresses of the job's own nodes."""
        self._own.update(map(_household, addresses))

    def add(self, connection: Connection) -> Connection | None:
        """Add one; returns the connection that has to go for it, if any."""
        gone = self._pick() if self._count >= self._most else None
        self._waiting.setdefault(_household(connection.address), {})[connection] = None
        self._count += 1
        return gone

    def discard(self, connection: Connection) -> None:
        """Forget one that has proved itself, or gone."""
        household = _household(connection.address)
        waiting = self._waiting.get(household, {})
        if connection in waiting:
            del waiting[connection]
            self._count -= 1
            if not waiting:
                del self._waiting[household]

    def all(self) -> list[Connection]:
        """All of them."""
        return [connection for waiting in self._waiting.values() for connection in waiting]

    def _pick(self) -> Connection:
        _, _, waiting = max(((address not in self._own, len(waiting), waiting)
                             for address, waiting in self._waiting.items()), key=lambda row: row[:2])
        return next(iter(waiting))


def _household(address: str) -> str:
    """The key of an address: a process of this host may connect from any of 16 million loopback addresses."""
    return "127" if address.startswith("127.") else address
