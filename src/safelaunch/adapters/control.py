"""The leader's side of the node guards: who is connected, how each task ended, and the words it sends them.

One TCP listener on the batch host; each guard proves that it knows the run's token (HMAC-SHA256) before a word of it
counts, and so does the leader. Never blocks: the loop's selector calls in here.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import resource
import secrets
import selectors
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

MAX_LINE = 1 << 16
GREETING_S = 5.0            # a connection that has not proved itself by then is closed
MAX_STRANGERS = 1024        # unproved connections at once: another user's port scan must not eat our descriptors
STRANGERS_SHARE = 4         # ... nor more than this part of them, which are 1024 by default
_PING = b'{"do":"ping"}\n'
_PONG = b'{"ev": "pong"}'     # as a guard says it (node.guard.Link.say): most of all lines
_ROLES = ("guard", "standby")
_AT_ONCE = struct.pack("ii", 1, 0)   # socket(7), SO_LINGER: close() throws away what waits, and resets the connection
MOST_KERNEL_LINES, MAX_KERNEL_LINE = 40, 400
STANDBY_TASK = -1           # of a standby, which is no task of an attempt
# However many guards there are. The leader looks once a second: a standby hears of it each 1.5 s at most, and both
# sides doubt after 2 s (core.takeover). With a full second here a look right before it was due made 2.0 s (measured).
STANDBY_PING_S = 0.5


@dataclass(eq=False)
class Guard:
    """One task's guard as the leader knows it; times are monotonic seconds."""

    node: str
    task: int
    attempt: int
    connection: Connection | None = None
    heard_s: float = 0.0
    pinged_s: float = 0.0           # the last word that it may have heard: its lease counts from here at the latest
    closed_s: float | None = None   # since when it is not connected
    code: int | None = None
    signal: int | None = None
    gone: bool = False              # the launcher and all that came of it have left the node
    sure_s: float = -1e9            # of a standby: when the last ping was sent that it has answered
    kernel: tuple[tuple[float, str], ...] = ()   # what its node's kernel said until its task ended badly: when, what

    @property
    def has_answered(self) -> bool:
        """Whether this standby has answered a ping since it came, so that it knows itself let in (core.takeover)."""
        return self.connection is not None and self.sure_s > self.connection.born_s


@dataclass(eq=False)
class Connection:
    """A socket with its buffers; `guard` None until it has proved itself."""

    sock: socket.socket
    born_s: float
    nonce: str
    guard: Guard | None = None
    inbox: bytes = b""
    outbox: bytes = field(default=b"", repr=False)


class ControlServer:
    """Listener and guards of the run's live attempt."""

    def __init__(self, selector: selectors.BaseSelector, token: str, port: int = 0) -> None:
        self._selector = selector
        self._token = token.encode()
        self._connections: set[Connection] = set()
        self._attempt = 0                   # guards of earlier attempts are not let in
        self._shunned: set[str] = set()     # nodes that are left to their leases
        self._max_strangers = min(MAX_STRANGERS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // STRANGERS_SHARE)
        self.guards: dict[tuple[str, int], Guard] = {}
        self.standbys: dict[str, Guard] = {}   # by node; each ping tells them how far the pulse is
        self.pulse_count: int | None = None   # None = there is none yet: this leader is being born
        self.order: dict[str, Any] | None = None   # what a guard is told that comes, or comes back, too late to hear it
        self.signalled: list[str] = []      # processes that took a signal, as the guards name them
        self.signal_answers = 0             # guards that have said which of theirs did
        self.on_report: Callable[[Guard], None] = lambda guard: None
        self.on_standby: Callable[[], None] = lambda: None   # before one is let in
        self._listener = self._listen(port)
        self.port: int = self._listener.getsockname()[1]
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _listen(self, port: int) -> socket.socket:
        """A listener on all interfaces: the guards come from other nodes. On `port` again when that is free."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            listener.bind(("", 0))
        listener.listen(1024)
        listener.setblocking(False)
        return listener

    def expect(self, attempt: int) -> None:
        """Forget the guards of earlier attempts; words of theirs no longer count, and none is let in any more.

        A node that was stopped and wakes up would else be heard and answered, so that its guard never feels alone.
        """
        self._attempt, self.order = attempt, None
        for guard in self.guards.values():
            if guard.connection and guard.attempt != attempt:
                self._reset(guard.connection, guard.heard_s)
        self.guards = {key: guard for key, guard in self.guards.items() if guard.attempt == attempt}

    def tick(self, now_s: float, ping_every_s: float) -> None:
        """Ping who is due; drop connections that prove nothing."""
        for connection in tuple(self._connections):
            guard = connection.guard
            if guard is None:
                if now_s - connection.born_s > GREETING_S:
                    self._close(connection, now_s)
            elif now_s - guard.pinged_s >= (ping_every_s if guard.task != STANDBY_TASK else STANDBY_PING_S):
                self._ping(guard, connection, now_s)

    def show_pulse(self, count: int, now_s: float) -> None:
        """Tell the standbys of a pulse before the folder does: whoever reads it as new follows its promise."""
        self.pulse_count = count
        self.ping_standbys(now_s)

    def ping_standbys(self, now_s: float) -> None:
        """Ping them out of turn."""
        for guard in self.standbys.values():
            if guard.connection:
                self._ping(guard, guard.connection, now_s)

    def _ping(self, guard: Guard, connection: Connection, now_s: float) -> None:
        guard.pinged_s = now_s
        self._send(connection, self._ping_of(guard, now_s), now_s)

    def _ping_of(self, guard: Guard, now_s: float) -> bytes:
        if guard.task != STANDBY_TASK:
            return _PING
        return json.dumps({"do": "ping", "count": self.pulse_count, "s": round(now_s, 3)}).encode() + b"\n"

    def forgive(self, now_s: float) -> None:
        """Start everybody's silence anew."""
        for guard in (*self.guards.values(), *self.standbys.values()):
            if guard.connection:
                guard.heard_s = now_s
            elif guard.closed_s is not None:
                guard.closed_s = now_s

    def hang_up(self, node: str, now_s: float) -> None:
        """Never speak to this node again, also when its guards call: their lease runs out."""
        self._shunned.add(node)
        for guard in self.of(node):
            if guard.connection:
                self._reset(guard.connection, now_s)

    def remember(self, nodes: Iterable[str], now_s: float) -> None:
        """Count the standbys on these nodes as let in, and silent from now on."""
        for node in nodes:
            self.standbys[node] = Guard(node, STANDBY_TASK, 0, heard_s=now_s)

    def forget_standby(self, node: str) -> None:
        """Hang up on a standby that has been silent for long: it must be let in anew."""
        guard = self.standbys[node]
        if guard.connection:
            self._reset(guard.connection, guard.heard_s)

    def of(self, node: str) -> list[Guard]:
        """The node's guards."""
        return [guard for guard in self.guards.values() if guard.node == node]

    def tell(self, message: dict[str, Any], now_s: float) -> int:
        """Guards that were told."""
        data = json.dumps(message).encode() + b"\n"
        told = [guard for guard in self.guards.values() if guard.connection and not guard.gone]
        for guard in told:
            if guard.connection:
                self._send(guard.connection, data, now_s)
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
            while True:
                sock, _ = self._listener.accept()
                if sum(connection.guard is None for connection in self._connections) >= self._max_strangers:
                    sock.close()
                    continue
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = Connection(sock, now_s, secrets.token_hex(16))
                self._connections.add(connection)
                self._selector.register(sock, selectors.EVENT_READ, lambda now, c=connection: self._serve(c, now))
                self._send(connection, json.dumps({"nonce": connection.nonce}).encode() + b"\n", now_s)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):   # else the listener stays readable and the loop spins
                for connection in [known for known in self._connections if known.guard is None]:
                    self._close(connection, now_s)

    def _serve(self, connection: Connection, now_s: float) -> None:
        if connection.outbox:
            self._send(connection, b"", now_s)
        try:
            data = connection.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection, now_s)
            return
        if not data:
            self._close(connection, now_s)
            return
        *lines, connection.inbox = (connection.inbox + data).split(b"\n")
        if len(connection.inbox) > MAX_LINE:
            self._close(connection, now_s)
            return
        for line in lines:
            if connection in self._connections:
                self._take(connection, line, now_s)

    def _take(self, connection: Connection, line: bytes, now_s: float) -> None:
        if line == _PONG and connection.guard is not None:
            connection.guard.heard_s = now_s
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._close(connection, now_s)
        elif connection.guard is None:
            self._greet(connection, message, now_s)
        else:
            self._report(connection.guard, message, now_s)

    def _greet(self, connection: Connection, message: dict[str, Any], now_s: float) -> None:
        node, task, attempt = message.get("node"), message.get("task"), message.get("attempt")
        role = message.get("role", "guard")
        nonce = str(message.get("nonce", ""))
        who = f"{node}|{task}|{attempt}"
        proved = nonce.endswith(connection.nonce) and len(nonce) > len(connection.nonce) and hmac.compare_digest(
            str(message.get("mac", "")).encode(errors="replace"), _mac(self._token, str(role), nonce + who).encode())
        is_whole = isinstance(node, str) and isinstance(task, int) and isinstance(attempt, int)
        if not proved or role not in _ROLES or not is_whole:
            self._close(connection, now_s)
            return
        assert isinstance(node, str) and isinstance(task, int) and isinstance(attempt, int)
        if role == "guard" and (node in self._shunned or attempt < self._attempt):
            self._close(connection, now_s)   # of an attempt that is over: it will find its record moved on
            return
        guard = self._standby(node) if role == "standby" else self._guard(node, task, attempt)
        if guard is None:
            self._close(connection, now_s)
            return
        if guard.connection:
            self._close(guard.connection, now_s)
        if role == "standby":
            guard.sure_s = max(guard.sure_s, connection.born_s)   # its proof holds a word of ours from then
            self.on_standby()
        connection.guard = guard
        guard.connection, guard.closed_s, guard.heard_s, guard.pinged_s = connection, None, now_s, now_s
        self._send(connection, json.dumps({"mac": _mac(self._token, "leader", nonce)}).encode() + b"\n", now_s)
        if role == "guard" and self.order is not None:
            self._send(connection, json.dumps(self.order).encode() + b"\n", now_s)
        self.on_report(guard)

    def _standby(self, node: str) -> Guard:
        return self.standbys.setdefault(node, Guard(node, STANDBY_TASK, 0))

    def _guard(self, node: str, task: int, attempt: int) -> Guard | None:
        """The guard's entry; None where a later attempt's has it."""
        guard = self.guards.setdefault((node, task), Guard(node, task, attempt))
        if guard.attempt < attempt:
            guard = self.guards[(node, task)] = Guard(node, task, attempt)
        return guard if guard.attempt == attempt else None

    def kernel_lines(self, nodes: Iterable[str]) -> dict[str, tuple[tuple[float, str], ...]]:
        """node → what its kernel said until a task of it ended badly, as far as users may read that."""
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
            asked_s = message.get("s")   # an answer can be long on its way: what it proves is as old as its question
            if isinstance(asked_s, float) and guard.sure_s < asked_s <= now_s + 0.001:
                guard.sure_s = asked_s
            if guard.connection and isinstance(message.get("t"), float):   # it asks whether somebody lives here
                guard.pinged_s = now_s
                answer = {"do": "ping", "t": message["t"]}
                self._send(guard.connection, json.dumps(answer).encode() + b"\n", now_s)
            return
        if kind == "exited" and guard.code is None:
            guard.code, guard.signal = _small_int(message.get("code")), message.get("signal")
            guard.kernel = _kernel_lines(message.get("kernel"))
        elif kind == "gone":
            guard.gone = True
            if guard.code is None:
                guard.code = _small_int(message.get("code"))
        elif kind == "signalled":
            self.signal_answers += 1
            self.signalled += [f"{guard.node}: {name}" for name in message.get("reached", ())]
        self.on_report(guard)

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
        if len(connection.outbox) > MAX_LINE:   # it reads nothing any more: the pings tell when it is lost
            connection.outbox = connection.outbox[:MAX_LINE]

    def _reset(self, connection: Connection, now_s: float) -> None:
        """Close so that nothing of what was said and could not be sent yet is heard later: a lease would begin anew."""
        with contextlib.suppress(OSError):
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._close(connection, now_s)

    def _close(self, connection: Connection, now_s: float) -> None:
        self._connections.discard(connection)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.sock.close()
        guard = connection.guard
        if guard is not None and guard.connection is connection:
            guard.connection, guard.closed_s = None, now_s
            self.on_report(guard)


def _mac(token: bytes, role: str, text: str) -> str:
    """As node.guard.mac, which cannot be imported from there to here: the guard travels alone."""
    return hmac.new(token, f"{role}|{text}".encode(errors="replace"), hashlib.sha256).hexdigest()


def _kernel_lines(value: object) -> tuple[tuple[float, str], ...]:
    lines = value[:MOST_KERNEL_LINES] if isinstance(value, list) else []
    return tuple((float(line[0]), str(line[1])[:MAX_KERNEL_LINE]) for line in lines
                 if isinstance(line, list) and len(line) == 2 and isinstance(line[0], int | float))


def _small_int(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= 255 else 255
