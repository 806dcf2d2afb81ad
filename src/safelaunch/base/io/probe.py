"""Touch what may hang (a shared path, a sick device) in a disposable child, so that a probe never hangs the prober.

The child is forked and never executed: on a frozen mount exec, stat and lazy imports hang too. SIGKILL ends it only
when the kernel allows. A write to a frozen ext4 sleeps in D state until the thaw. (An incident: rank 0 slept for ever
in a log write.) Such a child is left, counted by `stuck_children`, and reaped when it ends.

A fork of a 40 MB leader with its answer costs 2-4 ms (benchmarks/pump.py).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")

ALONE_S = 0.1   # a healthy folder answers within milliseconds; whoever listens to others waits for no more than this
# From the end of the answer to the end of the child: 0.2 ms, but closing a file on a stopped FUSE hangs.
REAP_WITHIN_S = 0.05
# The child must not run the parent's handlers: a scancel reaches every process of the step.
RESET_SIGNALS = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCHLD,
)

_forking = threading.Lock()
_ended: set[int] = set()  # children whose answer was read, and which are about to exit
_stuck: set[int] = set()  # children that were killed for being late, and still hang


@dataclass(frozen=True)
class ChildAnswer(Generic[T]):
    """The result: a value, an error text with its errno, or nothing in time (`late`)."""

    value: T | None = None
    error: str = ""
    errno: int = 0
    late: bool = False
    took_s: float = 0.0

    @property
    def is_ok(self) -> bool:
        return not self.late and not self.error


def run_in_child(fn: Callable[[], T], deadline_s: float, beside: Callable[[], None] | None = None) -> ChildAnswer[T]:
    """The value of `fn()`, computed in a forked child; at the latest after `deadline_s` + `REAP_WITHIN_S`.

    The value goes through JSON (a tuple comes back as a list). The child has none of the parent's open files, so that a
    stuck one keeps no socket of a dead leader open. A fork that fails is the error. `beside`: what is called again and
    again from ALONE_S on, and waits a moment itself.
    """
    reap_children()
    start_s = time.monotonic()
    try:
        reader, writer = os.pipe()
    except OSError as error:
        return ChildAnswer(error=f"cannot open a pipe to a probe: {error.strerror}", errno=error.errno or 0)
    try:
        pid = _fork()
        if pid == 0:
            _be_the_child(fn, writer, deadline_s)
    except OSError as error:
        os.close(reader)
        return ChildAnswer(error=f"cannot fork a probe: {error.strerror}", errno=error.errno or 0)
    finally:
        os.close(writer)
    try:
        answer = _read_until(reader, start_s + deadline_s, beside)
    finally:
        os.close(reader)
    return _judge(pid, answer, start_s)


class BackgroundChild:
    """`fn()` in a forked child in a session of its own, beside the caller: `poll` until it is there. At the deadline
    all processes of the session end, such as a command that it started. Raises OSError where no child can be made.
    """

    def __init__(self, fn: Callable[[], T], deadline_s: float) -> None:
        reap_children()
        self._start_s = time.monotonic()
        self._until_s = self._start_s + deadline_s
        self._parts: list[bytes] = []
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.set_blocking(writer, True)
            self._pid = _fork()
        except OSError:
            os.close(self._reader)
            os.close(writer)
            raise
        if self._pid == 0:
            _be_the_child(lambda: _apart(fn), writer, deadline_s)
        os.close(writer)

    def poll(self) -> ChildAnswer[Any] | None:
        """The answer; None = not yet. Not to be asked again after it."""
        try:
            while part := os.read(self._reader, 1 << 16):
                self._parts.append(part)
        except BlockingIOError:
            if time.monotonic() < self._until_s:
                return None
            with contextlib.suppress(OSError):   # it has not come so far, or has ended
                os.killpg(self._pid, signal.SIGKILL)
            self._parts = []
            return self._close(None)
        return self._close(b"".join(self._parts))

    def _close(self, answer: bytes | None) -> ChildAnswer[Any]:
        os.close(self._reader)
        return _judge(self._pid, answer, self._start_s)


def _fork() -> int:
    """As os.fork, for one thread at a time: in a program that has imported filelock (4.2; PyTorch does) a second fork
    raises RuntimeError. So another library's fork at this moment is an OSError here.
    """
    with _forking:
        try:
            return os.fork()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error


def _apart(fn: Callable[[], T]) -> T:
    os.setsid()
    return fn()


def stuck_children() -> int:
    """How many killed children still hang on their paths; each is a process of this user."""
    reap_children()
    return len(_stuck)


def reap_children() -> None:
    """Reap those that have ended, without waiting."""
    for pid in (*_ended, *_stuck):
        if _is_gone(pid):
            _ended.discard(pid)
            _stuck.discard(pid)


def _be_the_child(fn: Callable[[], T], writer: int, deadline_s: float) -> NoReturn:
    """Compute, answer, and exit without the parent's atexit handlers, buffers and finally blocks."""
    try:
        signal.set_wakeup_fd(-1)
        for number in RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        # If the parent dies, the kernel ends this child: nobody else would.
        signal.setitimer(signal.ITIMER_REAL, deadline_s + 1.0)
        _close_files_but(writer)
        _send(writer, _answer_of(fn))
        os.close(writer)   # the exit frees the memory first, and the parent would wait for that
    finally:
        os._exit(0)


def _answer_of(fn: Callable[[], T]) -> bytes:
    try:
        return json.dumps({"value": fn()}).encode()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer; the parent decides
        return json.dumps({"error": _tell(error), "errno": getattr(error, "errno", None) or 0}).encode()


def _tell(error: BaseException) -> str:
    """The system's text and the path, for people; else the exception as Python prints it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    return f"{type(error).__name__}: {error}"


def _close_files_but(keep: int) -> None:
    """Close every inherited file; /proc/self/fd lists them, closing a million numbers blindly takes 0.1 s."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        if number != keep:
            os.dup2(nothing, number)
    for name in os.listdir("/proc/self/fd"):   # noqa: PTH208 - pathlib imports lazily
        number = int(name)
        if number > 2 and number != keep:
            with contextlib.suppress(OSError):  # the descriptor of this listing
                os.close(number)


def _send(writer: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view):]


def _read_until(reader: int, until_s: float, beside: Callable[[], None] | None) -> bytes | None:
    """All bytes up to the end of the pipe; None where the end did not come in time. What is there counts, however late
    this process itself comes to look.
    """
    # poll and not select: a leader with a connection per node has descriptors above FD_SETSIZE.
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    parts: list[bytes] = []
    alone_until_s = until_s if beside is None else min(until_s, time.monotonic() + ALONE_S)
    while True:
        now_s = time.monotonic()
        if beside is not None and alone_until_s <= now_s < until_s:
            beside()
        if not poll.poll(max(0.0, alone_until_s - now_s) * 1000):
            if now_s >= until_s:
                return None
            continue
        part = os.read(reader, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _judge(pid: int, answer: bytes | None, start_s: float) -> ChildAnswer[T]:
    if answer is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # A child that is merely slow dies within microseconds, and does not make the path stuck.
        if not is_gone_within(pid, REAP_WITHIN_S):
            _stuck.add(pid)
        return ChildAnswer(late=True, took_s=time.monotonic() - start_s)
    if not _is_gone(pid):
        _ended.add(pid)
    took_s = time.monotonic() - start_s
    try:
        fields: dict[str, Any] = json.loads(answer)
    except ValueError:
        return ChildAnswer(error="the probe's child died before it answered", took_s=took_s)
    if "error" in fields:
        return ChildAnswer(error=fields["error"], errno=fields["errno"], took_s=took_s)
    return ChildAnswer(value=fields["value"], took_s=took_s)


def is_gone_within(pid: int, within_s: float) -> bool:
    """Whether a child ends within that time, and is reaped."""
    until_s = time.monotonic() + within_s
    pause_s = 0.0001
    while not _is_gone(pid):
        if time.monotonic() >= until_s:
            return False
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.005)
    return True


def _is_gone(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # another waitpid(-1) reaped it
        return True
