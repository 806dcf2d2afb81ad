"""The guard's connection to the leader: sockets, addresses, and when to connect again; the lines are protocol's."""

from __future__ import annotations

import errno
import json
import select
import time

from safelaunch.node.guard.protocol import MAX_GREETING, MAX_LINE, PING, Session, from_leader, introduce, is_welcome
from safelaunch.node.light import socket, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RETRY_S = 1.0          # between two tries to reach the leader
CONNECT_S = 3.0        # for a connection, where the leader has more addresses: a firewall drops packets in silence
# A kernel whose queue of callers overflows forgets connections that the callers take for made (SYN cookies): of 10,000
# guards at once a third waited in such a one for good. Until the leader's first line the caller's kernel asks the
# other one, which refuses what it does not know, and answers for a caller that waits in its queue.
ASK_KERNEL_S = 2
# Where nobody answers at all; twice as long after each time in vain, and longer by a part of the caller's own.
GREET_S, MOST_GREET_S = 15.0, 60.0
STICK_S = 5.0          # to the address at which it was heard last: a restarted leader keeps it


class Link:
    """The connection to the leader, with protocol's lines: never blocking, reconnecting for ever.

    A host is one address or several, "10.1.0.5,10.2.0.5", which are tried in turn: other nodes may be unable to reach
    one of its networks.
    """

    def __init__(self, control: str, launch_address: str | None, token: str, who: dict[str, Any],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        host, _, port = control.rpartition(":")
        self.first_host = host or launch_address or ""
        self.hosts = hosts_of(self.first_host)
        self.address = (self.hosts[0], int(port))
        self.began_at = self.greeted_at = self.clock() - STICK_S
        self.token = token.encode()
        self.who = who
        self.sock: socket.socket | None = None
        self.connected = False
        self.inbox, self.outbox = b"", b""
        self.unsent: list[dict[str, Any]] = []   # what a restarted leader must hear again
        self.nonces = ""
        self.session: Session | None = None      # once both sides have proved themselves
        self.try_at = self.joined_at = 0.0
        self.vain = 0                            # connections in a row that have led to no leader
        self.share = sum(ord(char) * place for place, char in enumerate(
            "%s|%s" % (who.get("node"), who.get("task")), 1)) * 37 % 101 / 100   # 0..1, not the same for all guards
        self.answered = self.clock()         # the last answer from the leader's host

    @property
    def greeted(self) -> bool:
        """Whether this connection has reached the leader."""
        return self.session is not None

    def move(self, endpoint: tuple[str, int]) -> None:
        """Use another address from now on: a supervisor was started again there, and this one has been silent."""
        hosts = hosts_of(endpoint[0] or self.first_host)
        if (hosts, endpoint[1]) != (self.hosts, self.address[1]):
            self.hosts, self.address = hosts, (hosts[0], endpoint[1])
            self.greeted_at = self.clock() - STICK_S
            self.close()
            self.vain = 0

    def say(self, message: dict[str, Any]) -> None:
        """Send now, or as soon as there is a connection."""
        if self.session is not None:
            self.outbox += self.session.seal(json.dumps(message).encode())
            self._flush()
        if message.get("ev") in ("exited", "gone"):
            self.unsent.append(message)

    def drain(self, deadline_s: float) -> None:
        """Send the last messages, if anybody listens; a rank that died at once has them before there is a connection.

        Without them the leader hears only how the others ended, and blames the first of those.
        """
        now = self.clock()
        end = now + deadline_s
        while now < end and (self.outbox or not self.greeted):
            self.messages(now)
            if self.sock is None:
                break   # nobody listens
            is_idle = self.connected and not self.outbox
            select.select([self.sock] if is_idle else [], [] if is_idle else [self.sock], [], 0.1)
            self._flush()
            now = self.clock()

    def end(self) -> None:
        """Nothing more will be said."""
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)

    def messages(self, now: float) -> list[dict[str, Any]]:
        """Messages from the leader that have come since the last call."""
        if self.sock is None:
            if now >= self.try_at:
                self._connect(now)
            return []
        if not self.connected:
            if not self._finish_connect(self.sock):
                if self.sock is not None and len(self.hosts) > 1 and now - self.began_at > CONNECT_S:
                    self.close()
                return []
            self.joined_at = now
        heard = self._read(self.sock)
        # Not once that line has come: the leader has this caller then, and takes a closed connection for a dead task.
        if self.sock is not None and not self.nonces and now - self.joined_at > self._patience_s():
            self.close()
        return heard

    def _patience_s(self) -> float:
        """How long the leader has for its first line: it may be busy with thousands of other callers."""
        return min(GREET_S * 2.0 ** self.vain, MOST_GREET_S) * (1.0 + self.share)

    def _connect(self, now: float) -> None:
        self.try_at, self.began_at = now + RETRY_S, now
        try:
            family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
            self.sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask_kernel(self.sock)
            self.sock.connect(self.address)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error.errno)

    def _finish_connect(self, sock: socket.socket) -> bool:
        _, writable, _ = select.select([], [sock], [], 0)
        if not writable:
            return False
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._fail(number)
            return False
        self.connected = True
        return True

    def _read(self, sock: socket.socket) -> list[dict[str, Any]]:
        try:
            while len(self.inbox) <= MAX_LINE:   # who sends for ever may have the port of a dead leader
                data = sock.recv(65536)
                self.answered = self.clock() if self.greeted or not data else self.answered
                if not data:
                    self.close()
                    return []
                self.inbox += data
                if len(data) < 65536:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error.errno)
            return []
        lines = self.inbox.split(b"\n")
        self.inbox = lines.pop()
        if len(self.inbox) > (MAX_LINE if self.greeted else MAX_GREETING):
            self.close()
            return []
        return [message for message in map(self._take, lines) if message is not None]

    def _take(self, line: bytes) -> dict[str, Any] | None:
        """The message of a line; None where it is not the leader's next one: that ends the connection."""
        message: dict[str, Any] | None = None
        if self.sock is None:
            return None
        if self.session is not None:
            text = self.session.unseal(line)
            message = {"do": "ping"} if text == PING else from_leader(text) if text is not None else None
        elif not self.nonces:
            hello = introduce(self.token, self.who, line)
            if hello is not None:
                self.nonces, answer = hello
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)   # a cut cable may be mended
                self.outbox += answer
                self._flush()
                return None
        elif is_welcome(self.token, self.nonces, line):
            message = self._begin()
        if message is None:
            self.close()
        return message

    def _begin(self) -> dict[str, Any]:
        self.session = Session(self.token, self.nonces, is_leader=False)
        self.answered = self.greeted_at = self.clock()
        self.vain = 0
        for told in self.unsent:
            self.outbox += self.session.seal(json.dumps(told).encode())
        self._flush()
        return {"do": "hello"}

    def _flush(self) -> None:
        if not self.outbox or self.sock is None:
            return
        try:
            self.outbox = self.outbox[self.sock.send(self.outbox):]
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error.errno)

    def _fail(self, number: int | None) -> None:
        if number in (errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE):   # a living kernel refused
            self.answered = self.clock()
        self.close()

    def close(self) -> None:
        """Close, and connect again only when asked for messages."""
        if self.sock is not None:
            self.sock.close()
        now = self.clock()
        if self.greeted:
            self.greeted_at = now
        elif now - self.greeted_at >= STICK_S:
            self.address = (self.hosts[(self.hosts.index(self.address[0]) + 1) % len(self.hosts)], self.address[1])
        if self.connected and not self.greeted:
            self.vain += 1
            if self.vain > 1:   # not all at the same time again
                self.try_at = max(self.try_at, now + RETRY_S * (0.5 + self.share))
        self.sock = None
        self.connected, self.session = False, None
        self.inbox, self.outbox, self.nonces = b"", b"", ""


def hosts_of(text: str) -> list[str]:
    """The addresses in a host's text, each once; this machine's own where there are none."""
    return list(dict.fromkeys(part for part in text.split(",") if part)) or ["127.0.0.1"]


def ask_kernel(sock: socket.socket) -> None:
    """Have this kernel ask the other end's whether it knows the connection."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, ASK_KERNEL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASK_KERNEL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, int(MOST_GREET_S / ASK_KERNEL_S))
