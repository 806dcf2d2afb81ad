"""Reads of an attempt's record and of the heartbeat, in children: on a frozen folder they hang, never the guard."""

from __future__ import annotations

import json
import os
import select

from safelaunch.node.fresh import see
from safelaunch.node.light import signal, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.node.guard.fence import RecordState

PROBE_DEADLINE_S = 2.0
UNREADABLE = b'{"state":"unreadable"}\n'


class RecordProbe:
    """A disposable child that reads the attempt's record: on a frozen folder only it hangs, never the guard."""

    def __init__(self, path: str, deadline: float, in_child: Callable[[], None], afresh: bool = True) -> None:
        self.deadline = deadline
        self.reaped = False
        self.data = b""
        self.fd, child_fd = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                in_child()
                os.closerange(0, 3)   # while it hangs, it must not hold the task's output open
                for line in tell(path, afresh):
                    os.write(child_fd, line)
            finally:
                os._exit(0)
        os.close(child_fd)
        os.set_blocking(self.fd, False)

    def read_more(self, now: float) -> bool:
        """Whether it has said all."""
        ready, _, _ = select.select([self.fd], [], [], 0)
        data = os.read(self.fd, 16384) if ready else b""
        self.data += data
        return self.data.count(b"\n") >= 2 or bool(ready and not data) or now >= self.deadline

    def seen(self) -> RecordState:
        """What it has said so far."""
        return read(self.data)

    def close(self) -> bool:
        """Whether the child has gone; one that hangs is left behind, until the folder thaws or the step ends."""
        os.close(self.fd)
        if not self.reaped:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                self.reaped = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        return self.reaped


class Looks:
    """Reads of the record, one at a time: at most one child hangs on a frozen folder, not one a second."""

    def __init__(self, path: str, in_child: Callable[[], None]) -> None:
        self.path, self.in_child = path, in_child
        self.probe: RecordProbe | None = None
        self.hung: set[int] = set()   # children that a KILL did not end: they sleep in D state
        self.is_blind = False         # no read could be started

    def begin(self, now: float, afresh: bool) -> None:
        """Start a read; `poll` gives its result."""
        try:
            self.is_blind = bool(self.hung)
            if not self.is_blind:
                self.probe = RecordProbe(self.path, now + PROBE_DEADLINE_S, self.in_child, afresh)
        except OSError:   # no process or descriptor left
            self.is_blind = True

    def poll(self, now: float) -> RecordState | None:
        """The result of the read; None: none was started, or it is under way."""
        probe = self.probe
        if self.is_blind:
            self.is_blind = False
            return read(UNREADABLE)
        if probe is None or not probe.read_more(now):
            return None
        self.close()
        return probe.seen()

    def close(self) -> None:
        """End the read under way."""
        if self.probe is not None and not self.probe.close():
            self.hung.add(self.probe.pid)
        self.probe = None

    def reaped(self, pid: int) -> None:
        """This child of the guard has ended."""
        self.hung.discard(pid)
        if self.probe is not None and pid == self.probe.pid:
            self.probe.reaped = True

    def pids(self) -> set[int]:
        """The children that read."""
        return self.hung | ({self.probe.pid} if self.probe is not None else set())


def tell(path: str, afresh: bool) -> Iterator[bytes]:
    """The record and the heartbeat, a line each, as soon as it is read."""
    folder = os.path.dirname(path)
    try:
        if afresh:
            see(folder)
        with open(path, "rb") as record:
            yield record.read(4096).strip() + b"\n"
        with open(os.path.join(folder, "..", "..", "pulse.json"), "rb") as pulse:
            yield pulse.read(4096).strip() + b"\n"
    except FileNotFoundError:
        yield b'{"state":"missing"}\n'
    except OSError:
        yield UNREADABLE


def read(told: bytes) -> RecordState:
    """(live | ended | missing | unreadable, endpoint or None, the heartbeat's counter or None)."""
    record, _, pulse = told.partition(b"\n")
    return (*_record(record), _count(pulse))


def _record(line: bytes) -> tuple[str, tuple[str, int] | None]:
    try:
        record = json.loads(line)
        endpoint = record.get("endpoint")
        if endpoint and not 0 < int(endpoint[1]) < 1 << 16:
            endpoint = None
        return str(record["state"]), (str(endpoint[0]), int(endpoint[1])) if endpoint else None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return "unreadable", None


def _count(line: bytes) -> int | None:
    try:
        return int(json.loads(line)["count"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return None
