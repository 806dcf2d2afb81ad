"""Looks at an attempt's record and at the pulse, by children: on a frozen folder they hang, never the guard."""

from __future__ import annotations

import json
import os
import select

from safelaunch.node.fresh import see
from safelaunch.node.light import signal, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


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
                os.closerange(0, 3)   # asleep on a frozen folder, it must not hold the task's output open
                if afresh:
                    see(os.path.dirname(path))
                with open(path, "rb") as record:
                    os.write(child_fd, record.read(4096).strip() + b"\n")
                with open(os.path.join(os.path.dirname(path), "..", "..", "pulse.json"), "rb") as pulse:
                    os.write(child_fd, pulse.read(4096).strip() + b"\n")
            except FileNotFoundError:
                os.write(child_fd, b'{"state":"missing"}\n')
            except OSError:
                os.write(child_fd, b'{"state":"unreadable"}\n')
            finally:
                os._exit(0)
        os.close(child_fd)
        os.set_blocking(self.fd, False)

    def has_ended(self, now: float) -> bool:
        """Whether all is said that will be."""
        ready, _, _ = select.select([self.fd], [], [], 0)
        data = os.read(self.fd, 16384) if ready else b""
        self.data += data
        return self.data.count(b"\n") >= 2 or bool(ready and not data) or now >= self.deadline

    def verdict(self) -> tuple[str, tuple[str, int] | None, int | None]:
        """(live | ended | missing | unreadable, endpoint or None, the pulse's counter or None)."""
        record, _, pulse = self.data.partition(b"\n")
        return (*_record(record), _count(pulse))

    def close(self) -> bool:
        """Whether the child has gone; one that hangs is left behind, until the folder thaws or the step ends."""
        os.close(self.fd)
        if not self.reaped:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                self.reaped = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        return self.reaped


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
