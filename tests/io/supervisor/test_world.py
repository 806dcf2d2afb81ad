"""What a supervisor is given of the real world, where one process is first a standby and then the leader."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from safelaunch.supervisor.io.world import World


@pytest.fixture
def world() -> Iterator[World]:
    before = signal.getsignal(signal.SIGUSR1), signal.set_wakeup_fd(-1)
    world = World()
    yield world
    signal.set_wakeup_fd(before[1])
    signal.signal(signal.SIGUSR1, before[0])
    for key in list(world.selector.get_map().values()):
        world.selector.unregister(key.fileobj)
        os.close(key.fd)


def serve(world: World) -> None:
    """All that is ready by now."""
    for key, _ in world.selector.select(0):
        key.data(world.now_s())


def test_signal_that_came_between_standby_and_leader_is_heard_by_the_leader(world: World) -> None:
    standby: list[int] = []
    leader: list[int] = []
    world.on_signals([signal.SIGUSR1], lambda number, now_s: standby.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    world.on_signals([signal.SIGUSR1], lambda number, now_s: leader.append(number))
    serve(world)
    assert (standby, leader) == ([], [signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGUSR1)
    serve(world)
    assert (standby, leader) == ([], [signal.SIGUSR1] * 2)
