"""The shared run folder: one real folder on tmpfs, which each host sees through a mount that freezes and refuses.

What is read and written there is read and written by the project's own code; only when, and whether, is made up.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from safelaunch.base.io.probe import ALONE_S, ChildAnswer
from safelaunch.run.io import shared
from safelaunch.run.io.outbox import APPEND, PUT
from safelaunch.run.io.shared import FROZEN_AFTER_S, MAX_STUCK, SharedFolder
from tests.simulation.clients import Client
from tests.simulation.clock import Clock, Process

T = TypeVar("T")
RETRY_S = 1.0   # the courier's, on a folder that refuses


class Mount:
    """One host's way to the folder. `refuses`: errno of every write, 0 = none; `unreadable`: of every read."""

    def __init__(self, clock: Clock, rng: random.Random, latency_s: float, client: Client) -> None:
        self.clock, self.rng, self.latency_s, self.client = clock, rng, latency_s, client
        self.frozen_until = 0.0
        self.refuses = self.unreadable = 0
        self.flaky = 0                # errno of every third read and claim, by chance
        self.loses_links = 0          # answers to link() that will be lost
        self.lies_links = 0           # links that will succeed and say EEXIST
        self.is_running: Callable[[], bool] = lambda: True
        self.couriers: list[SimFolder] = []
        self._waiting: list[Callable[[], object]] = []

    @property
    def is_frozen(self) -> bool:
        """Whoever touches it now sleeps."""
        return self.clock.t < self.frozen_until

    def freeze(self, until_t: float) -> None:
        """Stop answering."""
        self.frozen_until = max(self.frozen_until, until_t)
        self.clock.at(until_t, self.thaw)

    def thaw(self) -> None:
        """Answer again, and serve those who slept."""
        if self.is_frozen:
            return
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            act()

    def when_thawed(self, act: Callable[[], object]) -> None:
        """`act` once the folder answers: now, where it does."""
        if self.is_frozen:
            self._waiting.append(act)
        else:
            act()

    def append(self, root: Path, name: str, text: str) -> None:
        """A line that somebody here appends, once the folder answers."""
        def do() -> None:
            apply(root, APPEND, name, text.encode())
            self.client.changed(root / name)
        self.when_thawed(do)

    def delay_s(self) -> float:
        """One access; now and then a slow one."""
        if not self.latency_s:
            return 0.0
        return self.latency_s * (0.5 + self.rng.random()) * (50.0 if self.rng.random() < 0.01 else 1.0)

    @contextlib.contextmanager
    def link_lies(self) -> Iterator[None]:
        """The next link() says EEXIST whatever it did, where a fault wants it."""
        if not self.lies_links:
            yield
            return
        self.lies_links -= 1
        link = os.link

        def lie(source: Path, path: Path) -> None:
            link(source, path)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        with mock.patch.object(os, "link", lie):
            yield

    def fails(self) -> int:
        """The errno of this access; 0 = it works."""
        return self.unreadable or (self.flaky if self.flaky and self.rng.random() < 0.3 else 0)

    def died(self) -> None:
        """The host is gone: nobody delivers any more."""
        self._waiting = []
        for courier in self.couriers:
            courier.kill_courier()
        self.couriers = []


class SimFolder(SharedFolder):
    """run.io.shared.SharedFolder under virtual time: the same promises, a courier that outlives its leader."""

    def __init__(self, process: Process, mount: Mount, root: Path, beside: Callable[[], None] | None = None) -> None:
        # no super(): it would fork
        self.root = root
        self.beside = beside
        self.trouble = ""
        self.courier_pid = 1
        self._process, self._mount, self._clock = process, mount, mount.clock
        self._last = self._done = 0
        self._stalled_since_s = 0.0
        self._frames: deque[tuple[int, bytes, str, bytes]] = deque()
        self._stuck = 0
        self._is_delivering = False
        self._courier_dead = self._is_abandoned = False
        self.on_outside: Callable[[str], None] = lambda what: None
        self.on_append: Callable[[bytes], None] | None = None   # for the timeline
        mount.couriers.append(self)

    def _write(self, kind: bytes, name: str, data: bytes, deadline_s: float) -> bool:
        was_frozen = self.is_frozen
        ticket = self.enqueue(kind, name, data)
        self._nap(0.0 if was_frozen else deadline_s, lambda: self.is_durable(ticket))
        return self.is_durable(ticket)

    def enqueue(self, kind: bytes, name: str, data: bytes) -> int:
        """As the real one; the local disk takes no time."""
        if self._is_abandoned:
            return self._done
        self.on_outside(f"write {name}")
        self._last += 1
        self._frames.append((self._last, kind, name, data))
        if self.on_append is not None and kind == APPEND:
            self.on_append(data)
        if self._last == self._done + 1:
            self._stalled_since_s = self._clock.t
        if not self._is_delivering:
            self._is_delivering = True
            self._clock.after(self._mount.delay_s(), self._deliver)
        return self._last

    def _deliver(self) -> None:
        if self._courier_dead:
            return
        if self._mount.is_frozen or not self._mount.is_running():
            self._mount.when_thawed(lambda: self._clock.after(0.2, self._deliver))
            return
        while self._frames:
            ticket, kind, name, data = self._frames[0]
            if kind == PUT and any(other[1:3] == (PUT, name) for other in list(self._frames)[1:]):
                pass   # an hour of frozen pulses is one pulse
            elif self._mount.refuses or not self.root.exists():   # a folder that was removed stays so
                self.trouble = os.strerror(self._mount.refuses or errno.ENOENT)
                self._clock.after(RETRY_S, self._deliver)
                return
            else:
                apply(self.root, kind, name, data)
                self._mount.client.changed(self.root / name)
            self._frames.popleft()
            self._done, self.trouble, self._stalled_since_s = ticket, "", self._clock.t
            delay_s = self._mount.delay_s()
            if delay_s and self._frames:
                self._clock.after(delay_s, self._deliver)
                self._process.wake()
                return
        self._is_delivering = False
        self._process.wake()

    def abandon(self) -> None:
        """As the real one."""
        self._is_abandoned, self.trouble, self._done = True, "", self._last

    def take_up(self) -> None:
        """As the real one."""
        self._is_abandoned, self._stalled_since_s = False, self._clock.t
        self._done = self._frames[0][0] - 1 if self._frames else self._last

    def kill_courier(self) -> None:
        """Slurm ends everything of the job, or the host dies: a line may be torn."""
        if not self._courier_dead and self._frames and self.root.exists() and self._mount.rng.random() < 0.3:
            _, kind, name, data = self._frames[0]
            if kind == APPEND and self._is_delivering and not self._mount.is_frozen and not self._mount.refuses:
                apply(self.root, kind, name, data[:len(data) // 2])
        self._courier_dead = True

    def publish(self, name: str, data: bytes, deadline_s: float = 2.0) -> bool | None:
        """As the real one, by its own code; frozen, or with an answer that is lost, None."""
        if self._is_abandoned:
            return True
        self.on_outside(f"publish {name}")
        mount, path = self._mount, self.root / name
        if mount.is_frozen:
            if mount.rng.random() < 0.3:   # a child in D state ends its link() after the thaw, killed or not
                mount.when_thawed(lambda: self._publish_late(path, data))
            self._nap(deadline_s)
            return None
        self._nap(mount.delay_s())
        if mount.refuses or not self.root.exists() or (mount.flaky and mount.fails()):
            self.trouble = os.strerror(mount.refuses or mount.flaky or errno.ENOENT)
            return None
        with mount.link_lies():
            won = shared._publish(self.root, path, data)
        mount.client.changed(path)
        if mount.loses_links:
            mount.loses_links -= 1
            self._nap(deadline_s)
            return None
        return won

    def _publish_late(self, path: Path, data: bytes) -> Any:
        won = shared._publish(self.root, path, data)
        self._mount.client.changed(path)
        return won

    def ask(self, fn: Callable[[], T], deadline_s: float = 2.0) -> ChildAnswer[T]:
        """As the real one: the answer goes through JSON."""
        self.on_outside("ask")
        mount = self._mount
        if self._stuck >= MAX_STUCK:
            return ChildAnswer(late=True)
        delay_s = mount.delay_s()
        if mount.is_frozen or delay_s > deadline_s:
            self._stuck += 1
            mount.when_thawed(self._unstick)
            self._nap(deadline_s)
            return ChildAnswer(late=True, took_s=deadline_s)
        self._nap(delay_s)
        if number := mount.fails():
            error = OSError(number, os.strerror(number))
            return ChildAnswer(error=f"OSError: {error}", errno=number)
        try:
            with mount.client.reading():
                return ChildAnswer(value=json.loads(json.dumps(fn())), took_s=delay_s)
        except Exception as error:  # noqa: BLE001 - as base.io.probe: whatever it is, it is the answer
            return ChildAnswer(error=f"{type(error).__name__}: {error}", errno=getattr(error, "errno", None) or 0)

    def _unstick(self) -> None:
        self._stuck -= 1

    def _nap(self, delay_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        nap(self._process, self._clock, delay_s, self.beside, is_over)

    def poll(self, now_s: float) -> None:
        """The courier speaks by itself."""

    def stalled_for_s(self, now_s: float) -> float:
        """By the clock of this simulation."""
        return 0.0 if self._done == self._last else max(0.0, self._clock.t - self._stalled_since_s)

    @property
    def is_frozen(self) -> bool:
        """As the real one."""
        return self.stalled_for_s(0.0) >= FROZEN_AFTER_S

    def close(self, deadline_s: float = 2.0) -> bool:
        """As the real one; the courier stays where something is left."""
        self._nap(deadline_s, lambda: self._done == self._last)
        return self._done == self._last


def nap(process: Process, clock: Clock, delay_s: float, beside: Callable[[], None] | None,
        is_over: Callable[[], bool] = lambda: False) -> None:
    """Wait as the real ones do: alone at first, then beside what the waiting process listens to."""
    until_t, alone_t = clock.t + delay_s, clock.t + ALONE_S
    while clock.t < until_t and not is_over():
        if beside is not None and clock.t >= alone_t:
            beside()
        else:
            process.sleep(min(until_t, until_t if beside is None else alone_t) - clock.t)


def apply(root: Path, kind: bytes, name: str, data: bytes) -> None:
    """One write, as the courier does it, without the disk's waits."""
    path = f"{root}/{name}"
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, 0o750)
    if kind == APPEND:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" + data if torn else data)
        finally:
            os.close(descriptor)
    elif kind == PUT:
        with open(f"{path}.draft", "wb") as draft:
            draft.write(data)
        os.replace(f"{path}.draft", path)
