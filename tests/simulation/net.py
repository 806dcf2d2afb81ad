"""The network between hosts: byte streams with latency, cables that are cut in one direction or both, half-open ends.

`Socket`, `Listener` and `Selector` stand in for the standard library's, as far as the control server and the supervisor
use them.
"""

from __future__ import annotations

import itertools
import random
import selectors
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from safelaunch.node.guard.protocol import PONG, SEAL
from tests.simulation.clock import SWITCH_S, Clock, Process

if TYPE_CHECKING:
    from tests.simulation.hosts import Host

SYN_RETRIES_S = (1.0, 3.0, 7.0, 15.0, 31.0, 63.0)   # tcp(7), tcp_syn_retries = 6
SYN_GIVES_UP_S = 127.0
# Nearly all that is ever sent. Answers to one round of pings are taken in together, as by a process that is slow to
# get the processor: half of all wakings are for nothing else.
PONG_LINE = b" " + PONG + b"\n"
PONG_SIZE = SEAL - 1 + len(PONG_LINE)   # with its proof
PONG_S = 0.02


class Net:
    """Who reaches whom, and the doors that are open."""

    def __init__(self, clock: Clock, rng: random.Random, latency_s: float) -> None:
        self.clock, self.rng, self.latency_s = clock, rng, latency_s
        self.cut: set[tuple[str, str]] = set()             # directed
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.ends: dict[Socket, None] = {}                  # with bytes on a way that is cut
        self.count = itertools.count()
        self.on_change: list[Callable[[], None]] = []

    def is_up(self, source: Host, target: Host) -> bool:
        """Whether packets pass, this way."""
        return not source.dead and not target.dead and (source.name, target.name) not in self.cut

    def change(self) -> None:
        """A cable was cut or mended, or a host has died: what waited may pass now, after TCP's next try."""
        # In an order that is the same in each process: a server walks a set of its connections.
        for end in sorted((end for end in self.ends if end.peer is not None and self.is_up(end.host, end.peer.host)),
                          key=lambda end: end.number):
            del self.ends[end]
            self.clock.after(self.rng.uniform(0.0, min(30.0, self.clock.t - end.stuck_t + 0.2)), end.flush)
        for act in self.on_change:
            act()


class Socket:
    """One end of a connection."""

    def __init__(self, net: Net, host: Host) -> None:
        self.net, self.host = net, host
        self.peer: Socket | None = None
        self.selector: Selector | None = None
        self.on_data: Callable[[], None] | None = None   # of an end without a selector: a guard's
        self.inbox = b""
        self.is_open = True
        self.is_connected = False
        self.error = 0
        self.fin = False
        self.stuck_t = 0.0
        self._out: list[bytes | None] = []               # None: the end
        self._resets = False
        self._last_t = 0.0
        # The same for each packet of a seed, in whatever order code under test walks a set of connections.
        self.number = next(net.count)
        self._draw = self.number * 0.6180339887

    def delay_s(self) -> float:
        """One packet's way."""
        self._draw += 0.7548776662
        return self.net.latency_s * (0.5 + self._draw % 1.0)

    # --- as the standard library's ----------------------------------------------------------------------------------

    def setblocking(self, flag: bool) -> None:
        """Nothing here blocks."""

    def setsockopt(self, level: int, name: int, value: int | bytes) -> None:
        """SO_LINGER is only ever set to have `close` reset the connection; no other option changes anything."""
        self._resets = self._resets or name == socket.SO_LINGER

    def getsockopt(self, *words: int) -> int:
        """SO_ERROR, once."""
        error, self.error = self.error, 0
        return error

    def recv(self, size: int) -> bytes:
        """What has come."""
        if self.error:
            raise OSError(self.error, "connection lost")
        if self.inbox:
            data, self.inbox = self.inbox[:size], self.inbox[size:]
            return data
        if self.fin:
            return b""
        raise BlockingIOError

    def send(self, data: bytes) -> int:
        """All of it: buffers are large."""
        if self.error or not self.is_open:
            raise BrokenPipeError
        if not self.is_connected:
            raise BlockingIOError
        self._put(bytes(data))
        return len(data)

    def shutdown(self, how: int) -> None:
        """Nothing more will be sent."""
        self._put(None)

    def close(self) -> None:
        """Say goodbye, if the host can."""
        if self.is_open:
            self.is_open = False
            if self.selector is not None:
                self.selector.forget(self)
            if self._resets:
                self._throw_away()
            else:
                self._put(None)

    def _throw_away(self) -> None:
        """What waits for the cable is never sent; the reset itself passes or is lost."""
        self._out.clear()
        self.net.ends.pop(self, None)
        if self.peer is not None and self.net.is_up(self.host, self.peer.host):
            self.net.clock.at(max(self.net.clock.t + self.delay_s(), self._last_t), self.peer.reset)

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _put(self, data: bytes | None) -> None:
        peer = self.peer
        if peer is None or self.host.dead:
            return
        if self._out or not self.net.is_up(self.host, peer.host):
            if not self._out:
                self.stuck_t = self.net.clock.t
            self._out.append(data)
            self.net.ends[self] = None
            return
        t = max(self.net.clock.t + self.delay_s(), self._last_t)
        self._last_t = t
        self.net.clock.at(t, lambda: peer.arrive(data))

    def flush(self) -> None:
        """Send what waited for the cable."""
        waiting, self._out = self._out, []
        for data in waiting:
            self._put(data)

    def arrive(self, data: bytes | None) -> None:
        """Bytes or the end come in; an end that is closed answers with a reset."""
        if self.host.dead:
            return
        if not self.is_open:
            peer = self.peer
            if data is not None and peer is not None and self.net.is_up(self.host, peer.host):
                self.net.clock.after(self.delay_s(), peer.reset)
            return
        if data is None:
            self.fin = True
        elif len(data) == PONG_SIZE and data.endswith(PONG_LINE) and not self.inbox and self.selector is not None:
            self.inbox = data
            self.selector.mark(self, PONG_S)
            return
        else:
            self.inbox += data
        self.notify()

    def reset(self) -> None:
        """The other side knows nothing of this connection."""
        if self.is_open and not self.error:
            self.error = 104
            self.notify()

    def notify(self) -> None:
        """Tell whoever listens."""
        if self.selector is not None:
            self.selector.mark(self)
        elif self.on_data is not None:
            self.on_data()

    def is_ready(self) -> bool:
        """Whether `recv` has something to say."""
        return bool(self.inbox or self.fin or self.error)

    # --- being born -------------------------------------------------------------------------------------------------

    def connect(self, find: Callable[[], tuple[Host, int] | None]) -> None:
        """Knock at a door until somebody answers, as the kernel does: refused at once, silence for minutes."""
        self._knock(find, 0)

    def _knock(self, find: Callable[[], tuple[Host, int] | None], tries: int) -> None:
        if not self.is_open or self.is_connected or self.host.dead:
            return
        found = find()
        if found is not None and self.net.is_up(self.host, found[0]) and self.net.is_up(found[0], self.host):
            target, port = found
            self.net.clock.after(2 * self.delay_s(), lambda: self._meet(target, port))
        elif tries < len(SYN_RETRIES_S):
            wait_s = SYN_RETRIES_S[tries] - (SYN_RETRIES_S[tries - 1] if tries else 0.0)
            self.net.clock.after(wait_s, lambda: self._knock(find, tries + 1))
        else:
            self.net.clock.after(SYN_GIVES_UP_S - SYN_RETRIES_S[-1], lambda: self._fail(110))

    def _meet(self, target: Host, port: int) -> None:
        if not self.is_open or self.host.dead or target.dead:
            return
        listener = self.net.listeners.get((target.name, port))
        if listener is None:
            self._fail(111)
            return
        other = Socket(self.net, target)
        self.peer, other.peer = other, self
        self.is_connected = other.is_connected = True
        listener.backlog.append(other)
        listener.notify()
        self.notify_connected()

    def _fail(self, error: int) -> None:
        if self.is_open and not self.is_connected:
            self.error = error
            self.notify_connected()

    def notify_connected(self) -> None:
        """The way is known, good or bad."""
        if self.selector is not None:
            self.selector.mark(self)
        elif self.on_data is not None:
            self.on_data()


class Listener:
    """An open door."""

    def __init__(self, net: Net, host: Host, port: int) -> None:
        self.net, self.host, self.port = net, host, port
        self.backlog: list[Socket] = []
        self.selector: Selector | None = None
        net.listeners[(host.name, port)] = self

    def getsockname(self) -> tuple[str, int]:
        """Where it is."""
        return self.host.name, self.port

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        """The next who knocks."""
        if not self.backlog:
            raise BlockingIOError
        sock = self.backlog.pop(0)
        return sock, (sock.peer.host.name if sock.peer is not None else "", 0)

    def notify(self) -> None:
        """Somebody knocks."""
        if self.selector is not None:
            self.selector.mark(self)

    def is_ready(self) -> bool:
        """Whether somebody waits."""
        return bool(self.backlog)

    def close(self) -> None:
        """Shut it; those who wait are turned away."""
        if self.net.listeners.get((self.host.name, self.port)) is self:
            del self.net.listeners[(self.host.name, self.port)]
        for sock in self.backlog:
            sock.close()


class Signals:
    """What a signal's pipe is to a selector."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.selector: Selector | None = None

    def is_ready(self) -> bool:
        """Whether one has come."""
        return bool(self.numbers)


class Selector(selectors.BaseSelector):
    """Where a process sleeps."""

    def __init__(self, process: Callable[[], Process]) -> None:
        self._process = process
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self._marked: dict[Any, None] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch an end, a door or signals."""
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[fileobj] = key
        fileobj.selector = self
        if fileobj.is_ready() or getattr(fileobj, "is_connected", False):
            self.mark(fileobj)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Watch it no more."""
        self._marked.pop(fileobj, None)
        return self._keys.pop(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch it for something else."""
        self.unregister(fileobj)
        return self.register(fileobj, events, data)

    def forget(self, fileobj: Any) -> None:
        """It is closed."""
        self._marked.pop(fileobj, None)

    def mark(self, fileobj: Any, delay_s: float = SWITCH_S) -> None:
        """It may be ready."""
        if fileobj in self._keys:
            self._marked[fileobj] = None
            self._process().wake(delay_s)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, after a sleep where nothing is."""
        ready = self._ready()
        if not ready:
            self._process().sleep(3600.0 if timeout is None else max(0.0, timeout))
            ready = self._ready()
        return ready

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        ready = []
        for fileobj in list(self._marked):
            key = self._keys[fileobj]
            if fileobj.is_ready():
                ready.append((key, key.events))
            else:
                del self._marked[fileobj]
                if key.events & selectors.EVENT_WRITE and getattr(fileobj, "is_connected", False):
                    ready.append((key, selectors.EVENT_WRITE))
        return ready

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """All that is watched."""
        return self._keys

    def close(self) -> None:
        """Nothing to give back."""


def as_socket(sock: Socket | Listener) -> socket.socket:
    """For code that is written for the real ones."""
    return cast("socket.socket", sock)
