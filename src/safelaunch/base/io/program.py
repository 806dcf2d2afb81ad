"""Programs that are started for what they say. Each has a deadline and bounded output. It leads a session of its own,
all of whose processes end when it hangs or says too much. What may hang as a function: base.io.probe.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

MOST_BYTES = 16 << 20   # squeue of a hundred thousand jobs
LOOK_S = 0.5            # between two looks at the size of what it says
REAP_S = 0.05           # from SIGKILL to its end, unless it sleeps in the kernel


class ProgramEnd(NamedTuple):
    """How a program ended. `code` None = it was killed: too late, or `is_cut`: it said more than it may."""

    code: int | None
    out: bytes
    err: bytes
    is_cut: bool = False


class ProgramRun:
    """A running program. Its output goes to memory, not to a folder that may be full. Raises OSError where it cannot be
    started. Deadline and size are looked at by `poll` and `wait` alone: between two calls it runs on, and output grows.
    """

    def __init__(self, argv: Sequence[str], deadline_s: float, *, env: Mapping[str, str] | None = None, cwd: str = "/",
                 stdin: bytes | None = None, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes, self._end_s = most_bytes, time.monotonic() + deadline_s
        self._ended: ProgramEnd | None = None
        with contextlib.ExitStack() as files:
            self._out, self._err = (files.enter_context(_memory(name)) for name in ("out", "err"))
            asked = None if stdin is None else files.enter_context(_memory("in"))
            if asked is not None and stdin is not None:
                asked.write(stdin)
                asked.seek(0)
            self._process = subprocess.Popen(
                argv, stdin=asked or subprocess.DEVNULL, stdout=self._out, stderr=self._err, env=env, cwd=cwd,
                start_new_session=True)
            self._files = files.pop_all()

    def poll(self) -> ProgramEnd | None:
        """How it ended; None while it runs."""
        if self._ended is not None:
            return self._ended
        code = self._process.poll()
        is_much = any(os.fstat(file.fileno()).st_size > self._most_bytes for file in (self._out, self._err))
        if code is None and not is_much and time.monotonic() < self._end_s:
            return None
        if code is None:
            self._kill()
        self._ended = ProgramEnd(None if is_much else code, self._read(self._out), self._read(self._err), is_much)
        self._files.close()
        return self._ended

    def wait(self, within_s: float = math.inf) -> ProgramEnd | None:
        """The same, waited for; None where it runs on after that time."""
        until_s = time.monotonic() + within_s
        while (ended := self.poll()) is None:
            left_s = min(until_s, self._end_s) - time.monotonic()
            if left_s <= 0 and time.monotonic() >= until_s:
                return None
            self._await_end(min(LOOK_S, max(0.001, left_s)))
        return ended

    def terminate(self) -> None:
        """Ask its processes to end; `poll` then tells how it ended."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)

    def close(self) -> None:
        """End it if it still runs; nobody reads what it said."""
        if self._ended is None and self._process.poll() is None:
            self._kill()
        self._files.close()

    def _await_end(self, within_s: float) -> None:
        """Until it ends, or so long. Popen's own wait sleeps up to 50 ms between two looks."""
        try:
            descriptor = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):   # built for, or run by, a kernel before 5.3
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(within_s)
            return
        try:
            ending = select.poll()
            ending.register(descriptor, select.POLLIN)
            ending.poll(math.ceil(within_s * 1e3))
        finally:
            os.close(descriptor)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_S)

    def _read(self, file: IO[bytes]) -> bytes:
        return os.pread(file.fileno(), self._most_bytes, 0)


def run(argv: Sequence[str], deadline_s: float, *, env: Mapping[str, str] | None = None, cwd: str = "/",
        stdin: bytes | None = None) -> ProgramEnd:
    """How a program ended, waited for. Ctrl-C does not reach its session: it is ended here."""
    with contextlib.closing(ProgramRun(argv, deadline_s, env=env, cwd=cwd, stdin=stdin)) as program:
        ended = program.wait()
    assert ended is not None   # it waits until the deadline
    return ended


def _memory(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(name), "wb+", buffering=0)
