"""The shared run folder, touched without ever waiting for it longer than a deadline.

Writes go in order through an outbox on a node-local disk to a courier, a child that hangs instead of the leader.
Disposable children do the reads and claims. While the folder is frozen (an incident: "the filesystem froze and became
unresponsive") the leader goes on, and after the thaw the outbox is delivered. If kill -9 ends leader and courier, the
courier of the next leader on this node delivers what they left.

An appended record arrives at least once, in order, and exactly once as long as one process writes the file. Give each a
number of its own, as the journal does (gen, seq), so that readers can tell.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import NoReturn, TypeVar

from safelaunch.base.io import durable
from safelaunch.base.io.probe import (
    ALONE_S,
    REAP_WITHIN_S,
    ChildAnswer,
    is_gone_within,
    run_in_child,
    stuck_children,
)
from safelaunch.errors import RunFolderError
from safelaunch.run.io.courier import UMASK, Courier, make_folder
from safelaunch.run.io.outbox import APPEND, PUT, Outbox

T = TypeVar("T")

DEADLINE_S = 2.0
# An fsync on a busy Lustre or GPFS takes up to a second; longer than this means frozen.
FROZEN_AFTER_S = 2.0
MAX_STUCK = 2  # probes left in D state; more tell nothing new, and count against the user's process limit
RESTART_AFTER_S = 0.2  # a courier that dies at once (no memory) must not cause a fork loop


class SharedFolder:
    """The run folder `root`, with an outbox in `spool_dir`. Make it early: the courier is a fork of this process.

    `beside`: what whoever waits longer than ALONE_S calls again and again; it waits a moment itself.
    """

    def __init__(self, root: Path, spool_dir: Path, beside: Callable[[], None] | None = None) -> None:
        self.root = root
        self.beside = beside
        self.trouble = ""
        try:
            spool_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._outbox = Outbox.create(spool_dir, root)
        except OSError as error:
            raise _no_outbox(spool_dir, error) from error
        self._doorbell = os.pipe2(os.O_CLOEXEC)
        self._answers = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._doorbell[1], False)
        os.set_blocking(self._answers[0], False)
        self._heard = b""
        self._last = self._done = 0
        self._stalled_since_s = 0.0
        self._is_abandoned = False
        self.courier_pid = 0
        self._courier_from_s = 0.0
        self._start_courier(time.monotonic())

    def append(self, name: str, data: bytes, deadline_s: float = DEADLINE_S) -> bool:
        """True once `data` is durable at the end of `root/name`; False = not yet: it waits in the outbox."""
        return self._write(APPEND, name, data, deadline_s)

    def put(self, name: str, data: bytes, deadline_s: float = DEADLINE_S) -> bool:
        """True once `root/name` holds `data`, replaced as a whole; of several that wait only the last is written."""
        return self._write(PUT, name, data, deadline_s)

    def publish(self, name: str, data: bytes, deadline_s: float = DEADLINE_S) -> bool | None:
        """True where `root/name` is ours, False where somebody else was first, None where the folder does not tell.

        `data` must name its owner (claims hold gen, host, pid): so a repeated publish after None knows its own file.
        Never queued: nobody would wait for a claim that appears after the thaw.
        """
        path = self.root / _checked(name)
        if self._is_abandoned:
            return True
        answer = self.ask(lambda: _publish(self.root, path, data), deadline_s)
        if not answer.late:
            self.trouble = answer.error
        return answer.value if answer.is_ok else None

    def ask(self, fn: Callable[[], T], deadline_s: float = DEADLINE_S) -> ChildAnswer[T]:
        """What `fn` returns, from a child of its own; late at once while MAX_STUCK of them hang."""
        if stuck_children() >= MAX_STUCK:
            return ChildAnswer(late=True)
        return run_in_child(fn, deadline_s, self.beside)

    def enqueue(self, kind: bytes, name: str, data: bytes) -> int:
        """A ticket for a write (APPEND, PUT); it waits for the local disk only."""
        if self._is_abandoned:
            return self._done
        try:
            self._last = self._outbox.add(kind, _checked(name), data)
        except OSError as error:
            raise _no_outbox(self._outbox.path.parent, error) from error
        if self._last == self._done + 1:
            self._stalled_since_s = time.monotonic()
        with contextlib.suppress(BlockingIOError):  # 64 kB of unread rings: the courier knows
            os.write(self._doorbell[1], b"!")
        return self._last

    def abandon(self) -> None:
        """The folder is gone: what waits is kept back, every write counts as done, and every claim as won: nobody else
        can publish one.
        """
        self._is_abandoned, self.trouble, self._done = True, "", self._last
        if self.courier_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.courier_pid, signal.SIGKILL)
            is_gone_within(self.courier_pid, REAP_WITHIN_S)
            self.courier_pid = 0

    def take_up(self) -> None:
        """It is there again: deliver what waited before, and write as ever."""
        self._is_abandoned, self._done, self._stalled_since_s = False, self._outbox.done, time.monotonic()
        self._start_courier(self._stalled_since_s)

    def is_durable(self, ticket: int) -> bool:
        """True once the write with this ticket is durable on the shared folder."""
        return ticket <= self._done

    def poll(self, now_s: float) -> None:
        """Read what the courier says, and start a new one where it died. `now_s` is monotonic. Never waits."""
        if self._is_abandoned:
            return
        with contextlib.suppress(BlockingIOError):
            self._heard += os.read(self._answers[0], 1 << 16)
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "done":
                self._done, self.trouble, self._stalled_since_s = int(rest), "", now_s
            elif word == "trouble":
                self.trouble = rest
        if self._done == self._last:
            self._outbox.rewind()
        if not self.courier_pid or _is_dead(self.courier_pid):
            self.courier_pid = 0
            if now_s - self._courier_from_s >= RESTART_AFTER_S:
                self._start_courier(now_s)

    def stalled_for_s(self, now_s: float) -> float:
        """For how long something has waited and nothing has become durable; 0 when nothing waits."""
        return 0.0 if self._done == self._last else max(0.0, now_s - self._stalled_since_s)

    @property
    def is_delivered(self) -> bool:
        """Whether everything that was written is durable."""
        return self._done == self._last

    @property
    def is_frozen(self) -> bool:
        """True while writes wait too long, whatever the reason; `trouble` is the folder's answer, if it gives one."""
        return self.stalled_for_s(time.monotonic()) >= FROZEN_AFTER_S

    def close(self, deadline_s: float = DEADLINE_S) -> bool:
        """True where everything is durable. Where not, the courier stays, delivers after the thaw, and ends."""
        until_s = time.monotonic() + deadline_s
        is_all = self._wait(self._last, until_s)
        os.close(self._doorbell[1])
        alone_until_s = time.monotonic() + ALONE_S
        while self.courier_pid and not _is_dead(self.courier_pid) and time.monotonic() < until_s:
            if self.beside is not None and time.monotonic() >= alone_until_s:
                self.beside()
            else:
                time.sleep(0.002)
        for descriptor in (self._doorbell[0], *self._answers, self._outbox.fileno()):
            os.close(descriptor)
        if is_all:
            self._outbox.remove()
        return is_all

    def _write(self, kind: bytes, name: str, data: bytes, deadline_s: float) -> bool:
        self.poll(time.monotonic())
        was_frozen = self.is_frozen
        ticket = self.enqueue(kind, name, data)
        # One deadline for the whole freeze, not one for every line: a frozen folder must not slow the leader down.
        return self._wait(ticket, time.monotonic() + (0.0 if was_frozen else deadline_s))

    def _wait(self, ticket: int, until_s: float) -> bool:
        poll = select.poll()
        poll.register(self._answers[0], select.POLLIN)
        alone_until_s = time.monotonic() + ALONE_S
        while True:
            now_s = time.monotonic()
            self.poll(now_s)
            if self.is_durable(ticket) or now_s >= until_s:
                return self.is_durable(ticket)
            if self.beside is not None and now_s >= alone_until_s:
                self.beside()
            else:   # it wakes now and then to check on the courier
                poll.poll(min(until_s - now_s, ALONE_S) * 1000)

    def _start_courier(self, now_s: float) -> None:
        self._courier_from_s = now_s
        try:
            pid = os.fork()
        except OSError as error:  # EAGAIN, ENOMEM: `poll` tries again, the outbox keeps it all
            self.trouble = f"cannot fork: {error.strerror}"
            return
        if pid == 0:
            _be_the_courier(Courier(self.root, self._doorbell[0], self._answers[1]), self._outbox)
        self.courier_pid = pid


def _be_the_courier(courier: Courier, outbox: Outbox) -> NoReturn:
    try:
        courier.run(outbox)
    except BaseException as error:  # noqa: BLE001 - whatever ends it, the leader must hear of it
        courier.tell(f"trouble the courier died of {type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _publish(root: Path, path: Path, data: bytes) -> bool:
    """Whether `path` is ours now; runs in a child."""
    os.umask(UMASK)
    make_folder(root, path.parent)
    return durable.publish(path, data)


def _checked(name: str) -> str:
    path = PurePath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"not a name below the run folder: {name!r}")
    return name


def _is_dead(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _no_outbox(folder: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"cannot keep the node-local outbox in {folder}: {error.strerror}",
        hint="free space on the local disk of the node, or point TMPDIR to another one",
    )
