"""A guard's patience with a leader that does not greet it: a connection may lead nowhere, or to one that is busy."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from safelaunch.node.guard.link import ASK_KERNEL_S, GREET_S, MOST_GREET_S, RETRY_S, Link
from safelaunch.node.guard.protocol import challenge

TOKEN = "a" * 64


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """The kernel takes the connections, and nobody greets who calls."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


class Caller:
    """A guard's link, and its clock."""

    def __init__(self, listener: socket.socket, task: int = 0) -> None:
        self.now_s = 1000.0
        self.link = Link(f"127.0.0.1:{listener.getsockname()[1]}", None, TOKEN,
                         {"node": "n0", "task": task, "attempt": 1}, lambda: self.now_s)

    def connects(self) -> None:
        """Turns until it has a connection."""
        while not self.link.connected:
            self.link.messages(self.now_s)
            self.now_s += 0.01

    def waits_s(self) -> float:
        """How long it waits for the first line."""
        self.connects()
        since_s = self.now_s
        while self.link.sock is not None:
            assert self.now_s < since_s + 1000, "it waits for ever"
            self.now_s += 0.25
            self.link.messages(self.now_s)
        return self.now_s - since_s


def test_a_guard_that_gets_no_first_line_calls_again_and_waits_longer_each_time(listener: socket.socket) -> None:
    caller = Caller(listener)
    waits = [caller.waits_s() for _ in range(6)]
    assert GREET_S <= waits[0] <= 2 * GREET_S + 0.5
    assert waits == sorted(waits) and waits[-1] <= 2 * MOST_GREET_S + 0.5
    assert caller.link.try_at - caller.now_s <= 2 * RETRY_S, "a healthy leader has it back before it counts as gone"


def test_a_guard_that_has_the_first_line_never_hangs_up(listener: socket.socket) -> None:
    """The leader may have greeted it by then: it would take the closed connection for a dead task."""
    caller = Caller(listener)
    caller.connects()
    leader, _ = listener.accept()
    with leader:
        leader.sendall(challenge()[1])
        while not caller.link.nonces:
            caller.link.messages(caller.now_s)
        for _ in range(1000):
            caller.now_s += 1.0
            caller.link.messages(caller.now_s)
        assert caller.link.connected and len(leader.recv(4096)) > 100, "it has introduced itself, once"


def test_the_kernel_asks_for_a_connection_only_until_the_first_line(listener: socket.socket) -> None:
    """A kernel without room forgets connections; but one that the leader has had may outlive a cut cable."""
    caller = Caller(listener)
    caller.connects()
    assert caller.link.sock is not None
    assert caller.link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert caller.link.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == ASK_KERNEL_S
    leader, _ = listener.accept()
    with leader:
        leader.sendall(challenge()[1])
        while not caller.link.nonces:
            caller.link.messages(caller.now_s)
        assert not caller.link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_guards_do_not_all_call_again_at_the_same_time(listener: socket.socket) -> None:
    assert len({round(Caller(listener, task).link.share, 2) for task in range(64)}) > 32
