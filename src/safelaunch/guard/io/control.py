"""The guards' server: which guards and standbys are connected, how each task ended, and the messages to them.

One TCP listener on the batch host. node.guard.protocol defines the messages and their proofs. It never blocks: the
loop's selector calls it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import resource
import selectors
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any

from safelaunch.base.timing import MANY_GUARDS, STANDBY_PING_S
from safelaunch.guard.io.callers import Connection, Guard, Strangers
from safelaunch.node.guard import protocol
from safelaunch.node.guard.protocol import MAX_LINE

GREETING_S = 5.0            # a connection that has not proved itself by then is closed
MAX_STRANGERS = 4096        # unproved connections at once: another user's port scan must not eat our descriptors
STRANGERS_SHARE = 4         # ... nor more than this part of them
AT_ONCE = 256               # connections accepted in one turn of the loop: a flood can outrun any loop
BACKLOG = 16384             # callers that the kernel keeps waiting, as far as net.core.somaxconn allows (4096)
CROWD_MOST_S = 30.0         # a crowd at the door excuses a guard that is not back for so long
TICK_SHARE = 32             # of the time between two pings of many guards: so often all of them are gone through
MOST_SIGNALLED = 4096       # names of processes that took a signal, to show to people
_NOW = struct.pack("ii", 1, 0)   # socket(7), SO_LINGER: close() throws away what waits, and resets the connection
# A guard's question: a line of each guard in three seconds, and a tenth of the leader's time by way of JSON.
_ASKED = re.compile(rb'\{"ev": "pong", "t": ([0-9]{1,12}\.[0-9]{1,12})\}')
STANDBY_TASK = -1           # of a standby, which is no task of an attempt


class ControlServer:
    """Listener and guards of the run's live attempt; `host` is the address that it listens on, "" = all of this host's.
    """

    def __init__(self, selector: selectors.BaseSelector, token: str, port: int = 0, host: str = "") -> None:
        self._selector = selector
        self._host = host
        self._token = token.encode()
        self._connections: set[Connection] = set()
        self._attempt = 0                   # guards of earlier attempts are refused
        self._shunned: set[str] = set()     # nodes that are left to their leases
        self.strangers = Strangers(
            min(MAX_STRANGERS, int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // STRANGERS_SHARE)))
        self.guards = {}
        self.standbys: dict[str, Guard] = {}   # by node; each ping tells them the heartbeat's counter
        self.heartbeat_count: int | None = None   # None = no heartbeat yet: this leader is starting
        self.order: dict[str, Any] | None = None   # told to a guard that connects later, or again
        self.signalled: list[str] = []      # processes that took a signal, as guards report them
        self.signal_answers = 0             # guards that have reported that
        self.on_report: Callable[[Guard], None] = lambda guard: None
        self.on_standby: Callable[[], None] = lambda: None   # before one becomes eligible
        self.crowded_s = -1e9               # when more callers waited than one turn accepts
        self._ticked_s = -1e9               # when `tick` has last gone through all connections
        self.forged = 0                     # lines on proved connections that no guard has sent
        self.on_forged: Callable[[Guard], None] = lambda guard: None
        self._listener = self._listen(port)
        self.port: int = self._listener.getsockname()[1]
        self.has_moved = port not in (0, self.port)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def guards(self) -> dict[tuple[str, int], Guard]:
        """By node and task; a new one is added by `_guard` alone."""
        return self._guards

    @guards.setter
    def guards(self, guards: dict[tuple[str, int], Guard]) -> None:
        self._guards = guards
        self._of_node: dict[str, dict[int, Guard]] = {}
        for (node, task), guard in guards.items():
            self._of_node.setdefault(node, {})[task] = guard

    def _listen(self, port: int) -> socket.socket:
        """A listener, on `port` again when that is free."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._host, port))
        except OSError:
            listener.bind((self._host, 0))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        return listener

    def report_to(self, *, on_report: Callable[[Guard], None], on_standby: Callable[[], None],
                  on_forged: Callable[[Guard], None]) -> None:
        """Who gets the guards' reports: all but their answers to pings."""
        self.on_report, self.on_standby, self.on_forged = on_report, on_standby, on_forged

    def tell_all(self, order: dict[str, Any], now_s: float) -> None:
        """Tell every guard, also those that connect later."""
        self.order = order
        self.tell(order, now_s)

    def forget_answers(self) -> None:
        """Count answers from 0: a new signal is sent."""
        self.signalled.clear()
        self.signal_answers = 0

    def expect(self, attempt: int) -> None:
        """Forget and refuse the guards of earlier attempts.

        A node that was stopped and wakes up must not be answered: its guard would take that for a sign of life.
        """
        self._attempt, self.order = attempt, None
        for guard in self.guards.values():
            if guard.connection and guard.attempt != attempt:
                self._reset(guard.connection, guard.heard_s)
        self.guards = {key: guard for key, guard in self.guards.items() if guard.attempt == attempt}

    def tick(self, now_s: float, ping_every_s: float) -> None:
        """Ping guards that are due; drop connections that prove nothing."""
        if len(self._connections) > MANY_GUARDS and now_s - self._ticked_s < ping_every_s / TICK_SHARE:
            return
        self._ticked_s = now_s
        for connection in tuple(self._connections):
            guard = connection.guard
            if guard is None:
                if now_s - connection.born_s > GREETING_S:
                    self._close(connection, now_s)
            elif guard.task == STANDBY_TASK:
                if now_s - guard.pinged_s >= STANDBY_PING_S:
                    self._ping(guard, connection, now_s)
            elif now_s - guard.pinged_s >= ping_every_s and not guard.owes_answer(now_s):
                self._ping(guard, connection, now_s)

    def show_heartbeat(self, count: int, now_s: float) -> None:
        """Tell the standbys of a heartbeat before it is in the folder: who reads it there keeps to its promise."""
        self.heartbeat_count = count
        self.ping_standbys(now_s)

    def ping_standbys(self, now_s: float) -> None:
        """Ping the standbys now."""
        for guard in self.standbys.values():
            if guard.connection:
                self._ping(guard, guard.connection, now_s)

    def _ping(self, guard: Guard, connection: Connection, now_s: float) -> None:
        guard.pinged_s = guard.asked_s = now_s
        self._say(connection, self._ping_of(guard, now_s), now_s)

    def _ping_of(self, guard: Guard, now_s: float) -> bytes:
        if guard.task != STANDBY_TASK:
            return protocol.PING
        return json.dumps({"do": "ping", "count": self.heartbeat_count, "s": round(now_s, 3)}).encode()

    def forgive(self, now_s: float) -> None:
        """Count everybody's silence from now."""
        for guard in (*self.guards.values(), *self.standbys.values()):
            if guard.connection:
                guard.heard_s = now_s
            elif guard.closed_s is not None:
                guard.closed_s = now_s

    def hang_up(self, node: str, now_s: float) -> None:
        """Never speak to this node again, also when its guards connect: their lease runs out."""
        self._shunned.add(node)
        for guard in self.of(node):
            if guard.connection:
                self._reset(guard.connection, now_s)

    def remember(self, nodes: Iterable[str], now_s: float) -> None:
        """Count the standbys on these nodes as eligible, and silent from now on."""
        for node in nodes:
            self.standbys[node] = Guard(node, STANDBY_TASK, 0, heard_s=now_s)

    def forget_standby(self, node: str) -> None:
        """Close the connection of a standby that has been silent for long: it must connect again to be eligible."""
        guard = self.standbys[node]
        if guard.connection:
            self._reset(guard.connection, guard.heard_s)

    def of(self, node: str) -> list[Guard]:
        """The node's guards."""
        return list(self._of_node.get(node, {}).values())

    def closed_for_s(self, guard: Guard, now_s: float) -> float | None:
        """How long a guard could have come back; None = it is connected, or has never been.

        While more callers wait than are accepted in one turn, one that is not back is no dead task: of 10,000 guards
        that connected at once, one of whose connections had closed ended a healthy attempt.
        """
        if guard.closed_s is None:
            return None
        return now_s - max(guard.closed_s, min(self.crowded_s, guard.closed_s + CROWD_MOST_S))

    def tell(self, message: dict[str, Any], now_s: float) -> int:
        """How many guards were told."""
        text = json.dumps(message).encode()
        told = [guard for guard in self.guards.values() if guard.connection and not guard.gone]
        for guard in told:
            if guard.connection:
                guard.pinged_s = now_s   # whatever it hears begins its lease anew
                self._say(guard.connection, text, now_s)
        return len(told)

    def close(self) -> None:
        """Close all sockets."""
        for connection in tuple(self._connections):
            self._close(connection, 0.0)
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._listener)
        self._listener.close()

    # --- one connection -------------------------------------------------------------------------------------------

    def _accept(self, now_s: float) -> None:
        try:
            for _ in range(AT_ONCE):
                sock, address = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                nonce, line = protocol.challenge()
                connection = Connection(sock, address[0], now_s, nonce)
                displaced = self.strangers.add(connection)
                if displaced is not None:
                    self._close(displaced, now_s)
                self._connections.add(connection)
                self._selector.register(sock, selectors.EVENT_READ, lambda now, c=connection: self._serve(c, now))
                self._send(connection, line, now_s)
            self.crowded_s = now_s
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):   # else the listener stays readable and the loop spins
                for connection in self.strangers.all():
                    self._close(connection, now_s)

    def _serve(self, connection: Connection, now_s: float) -> None:
        if connection.outbox:
            self._send(connection, b"", now_s)
        most = MAX_LINE if connection.session is not None else protocol.MAX_GREETING
        try:
            data = connection.sock.recv(most)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection, now_s)
            return
        if not data:
            self._close(connection, now_s)
            return
        *lines, connection.inbox = (connection.inbox + data).split(b"\n")
        if len(connection.inbox) > most:
            self._close(connection, now_s)
            return
        for line in lines:
            if connection in self._connections:
                self._take(connection, line, now_s)

    def _take(self, connection: Connection, line: bytes, now_s: float) -> None:
        guard, session = connection.guard, connection.session
        if guard is None or session is None:
            self._greet(connection, line, now_s)
            return
        text = session.unseal(line)
        if text == protocol.PONG:
            guard.heard_s = now_s
            return
        if (asked := _ASKED.fullmatch(text or b"")) is not None:
            guard.heard_s = now_s
            self._answer(guard, connection, asked[1], now_s)
            return
        message = protocol.from_caller(text) if text is not None else None
        if message is not None:
            self._report(guard, message, now_s)
            return
        self.forged += 1
        self._close(connection, now_s)
        self.on_forged(guard)

    def _greet(self, connection: Connection, line: bytes, now_s: float) -> None:
        hello = protocol.check_hello(self._token, connection.nonce, line)
        guard = self._find(hello) if hello is not None else None
        if hello is None or guard is None:
            self._close(connection, now_s)
            return
        if guard.connection:
            self._close(guard.connection, now_s)
        if guard.task == STANDBY_TASK:
            guard.sure_s = max(guard.sure_s, connection.born_s)   # its proof answers a number that we sent then
            self.on_standby()
        self.strangers.discard(connection)
        self.strangers.keep_for([connection.address])
        connection.guard = guard
        connection.session = protocol.Session(self._token, hello["nonce"], is_leader=True)
        guard.connection, guard.closed_s, guard.heard_s, guard.pinged_s = connection, None, now_s, now_s
        self._send(connection, protocol.welcome(self._token, hello["nonce"]), now_s)
        if hello["role"] == "guard" and self.order is not None:
            self._say(connection, json.dumps(self.order).encode(), now_s)
        self.on_report(guard)

    def _find(self, hello: dict[str, Any]) -> Guard | None:
        """The entry of a caller that has proved itself; None where it is refused."""
        node, task, attempt = hello["node"], hello["task"], hello["attempt"]
        if hello["role"] == "standby":
            return self._standby(node)
        if node in self._shunned or attempt < self._attempt or task == STANDBY_TASK:
            return None   # of an attempt that is over: its record says so
        guard = self._guard(node, task, attempt)
        if guard is not None:
            guard.tasks = hello.get("tasks")
        return guard

    def _standby(self, node: str) -> Guard:
        return self.standbys.setdefault(node, Guard(node, STANDBY_TASK, 0))

    def _guard(self, node: str, task: int, attempt: int) -> Guard | None:
        """The guard's entry; None where a guard of a later attempt has it."""
        guard = self._guards.get((node, task))
        if guard is None or guard.attempt < attempt:
            guard = self._guards[node, task] = Guard(node, task, attempt)
            self._of_node.setdefault(node, {})[task] = guard
        return guard if guard.attempt == attempt else None

    def kernel_lines(self, nodes: Iterable[str]) -> dict[str, tuple[tuple[float, str], ...]]:
        """node → its kernel lines until a task of it ended badly, as far as users may read them."""
        found: dict[str, tuple[tuple[float, str], ...]] = {}
        for node in nodes:
            lines = max((guard.kernel for guard in self.of(node)), key=len, default=())
            if lines:
                found[node] = lines
        return found

    def _report(self, guard: Guard, message: dict[str, Any], now_s: float) -> None:
        guard.heard_s = now_s
        kind = message.get("ev")
        if kind == "pong":
            asked_s = message.get("s")   # an answer proves life when its question was sent
            if isinstance(asked_s, float) and guard.sure_s < asked_s <= now_s + 0.001:
                guard.sure_s = asked_s
            if guard.connection and isinstance(message.get("t"), float):   # the guard asks for a sign of life
                self._answer(guard, guard.connection, json.dumps(message["t"]).encode(), now_s)
            return
        if kind == "exited" and guard.code is None:
            guard.code, guard.signal, guard.ended_s = message["code"], message.get("signal"), now_s
            guard.kernel = tuple((float(said_s), text) for said_s, text in message.get("kernel") or ())
        elif kind == "gone":
            guard.gone = True
            if guard.code is None:
                guard.code = message["code"]
        elif kind == "signalled":
            self.signal_answers += 1
            room = MOST_SIGNALLED - len(self.signalled)
            self.signalled += [f"{guard.node}: {name}" for name in message["reached"][:room]]
        self.on_report(guard)

    def _answer(self, guard: Guard, connection: Connection, asked: bytes, now_s: float) -> None:
        """A sign of life, to the guard that asked for one at that time of its clock."""
        guard.pinged_s = now_s
        self._say(connection, b'{"do": "ping", "t": %b}' % asked, now_s)

    def _say(self, connection: Connection, text: bytes, now_s: float) -> None:
        """Send to a caller that has proved itself."""
        assert connection.session is not None
        self._send(connection, connection.session.seal(text), now_s)

    def _send(self, connection: Connection, data: bytes, now_s: float) -> None:
        connection.outbox += data
        try:
            sent = connection.sock.send(connection.outbox) if connection.outbox else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection, now_s)
            return
        connection.outbox = connection.outbox[sent:]
        if len(connection.outbox) > MAX_LINE:   # it reads nothing any more: pings show when it is lost
            connection.outbox = connection.outbox[:MAX_LINE]

    def _reset(self, connection: Connection, now_s: float) -> None:
        """Close so that nothing unsent is delivered later: it would renew a lease."""
        with contextlib.suppress(OSError):
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOW)
        self._close(connection, now_s)

    def _close(self, connection: Connection, now_s: float) -> None:
        self._connections.discard(connection)
        self.strangers.discard(connection)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.sock.close()
        guard = connection.guard
        if guard is not None and guard.connection is connection:
            guard.connection, guard.closed_s = None, now_s
            self.on_report(guard)
