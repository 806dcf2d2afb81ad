"""Disposable children for whatever may hang: many at once, each with a deadline, and none is ever waited for.

A function runs in a fork, a program in a fork that executes it: exec itself hangs on a frozen mount, and subprocess
waits for it. A child holds none of this process's files, so that one that sleeps in D state for ever keeps no step's
output open. Travels with node.collect as text: standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Optional, Union

    Work = Union[Sequence[str], Callable[[], bytes]]

REAP_WITHIN_S = 0.05     # for one that was killed
EXIT_WITHIN_S = 2.0      # from the end of its output to its own: 0.2 ms, and more where it waits for a processor
MOST_STUCK = 16          # children left behind; each more says nothing new, and counts against the user's processes
MOST_BYTES = 8 << 20     # of one child's output
LEAST_SHARE = 1 / 3      # of its deadline: who got less, because all had to end, is not called late for it
NO_TIME = b"no time was left"


class Outcome:
    """How a child ended: its output, its exit code (None = it was late, or killed), and whether it was late."""

    def __init__(self, out: bytes, err: bytes, code: Optional[int], late: bool) -> None:
        self.out, self.err, self.code, self.late = out, err, code, late

    @property
    def had_no_time(self) -> bool:
        """Whether it did not begin, or was ended long before its own deadline: then being late says nothing of it."""
        return self.late and self.err == NO_TIME

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace")

    def told(self) -> Optional[dict[str, Any]]:
        """The JSON object in its last line, since a site's sitecustomize may print before it; None = there is none."""
        try:
            told = json.loads((self.text.strip().splitlines() or [""])[-1])
        except (ValueError, RecursionError):
            return None
        return told if isinstance(told, dict) else None

    @property
    def said(self) -> str:
        """What it complained of, in one line."""
        text = self.err.decode(errors="replace").partition("Stack backtrace:")[0]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " ".join(lines[:4])[:300]


class Child:
    """One running child."""

    def __init__(self, work: Work, deadline_s: float, env: Optional[Mapping[str, str]] = None) -> None:
        self.is_short = False
        self.start_s = time.monotonic()
        self.until_s = self.start_s + deadline_s
        self.parts: dict[int, list[bytes]] = {}
        pipes = os.pipe(), os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            for end in (*pipes[0], *pipes[1]):
                os.close(end)
            raise
        if self.pid == 0:
            _be_the_child(work, env, pipes[0][1], pipes[1][1])
        for reader, writer in pipes:
            os.close(writer)
            os.set_blocking(reader, False)
            self.parts[reader] = []
        self.open = set(self.parts)
        self.size = 0

    def receive(self, fd: int) -> bool:
        """Take what has come on one of its pipes; False where nothing has."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        self.size += len(data)
        if data and self.size <= MOST_BYTES:
            self.parts[fd].append(data)
        else:
            self.open.discard(fd)
        return True

    def check_late(self) -> bool:
        """Whether its time is up. What it has said by now counts, however late this process itself comes to look."""
        if time.monotonic() < self.until_s:
            return False
        for fd in list(self.open):
            while fd in self.open and self.receive(fd):
                pass
        return bool(self.open)

    def end(self, late: bool) -> Outcome:
        """Its outcome; a late one is killed, and left behind where that does not help."""
        if late:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        code = _reap(self.pid, REAP_WITHIN_S if late else EXIT_WITHIN_S)
        out, err = (b"".join(parts) for parts in self.parts.values())
        for fd in self.parts:
            os.close(fd)
        return Outcome(out, NO_TIME if late and self.is_short else err, None if late else code, late)


class Task:
    """Work to be done in a child: `name` finds its outcome again."""

    def __init__(self, name: Any, work: Work, deadline_s: float, env: Optional[Mapping[str, str]] = None) -> None:
        self.name, self.work, self.deadline_s, self.env = name, work, deadline_s, env


def run_all(tasks: Iterable[Task], at_once: int, until_s: float) -> dict[Any, Outcome]:
    """name → outcome, `at_once` children at a time; what had no turn before `until_s` is late without having begun."""
    waiting, outcomes = list(tasks), {}
    running: dict[Any, Child] = {}
    poll = select.poll()
    while waiting or running:
        now_s = time.monotonic()
        while waiting and len(running) < at_once and now_s < until_s:
            task = waiting.pop(0)
            try:
                child = Child(task.work, min(task.deadline_s, until_s - now_s), task.env)
                child.is_short = until_s - now_s < LEAST_SHARE * task.deadline_s
            except OSError as error:
                outcomes[task.name] = Outcome(b"", ("cannot fork: %s" % error.strerror).encode(), 1, False)
                continue
            running[task.name] = child
            for fd in child.open:
                poll.register(fd, select.POLLIN)
        if now_s >= until_s:
            outcomes.update((task.name, Outcome(b"", NO_TIME, None, True)) for task in waiting)
            waiting = []
        if not running:
            continue
        _receive(poll, running)
        for name, child in list(running.items()):
            open_before, late = set(child.open), child.check_late()
            if late or not child.open:
                for fd in open_before:
                    poll.unregister(fd)
                outcomes[name] = running.pop(name).end(late)
    return outcomes


def _receive(poll: Any, running: dict[Any, Child]) -> None:
    owners = {fd: child for child in running.values() for fd in child.open}
    left_s = min(child.until_s for child in running.values()) - time.monotonic()
    for fd, _ in poll.poll(max(0.0, left_s) * 1000):
        child = owners[fd]
        child.receive(fd)
        if fd not in child.open:
            poll.unregister(fd)


def walk(items: Sequence[Any], work: Callable[[Any], Any], stall_s: float, until_s: float) -> tuple[dict[int, Any],
                                                                                                     list[int]]:
    """({index: what `work` says of the item}, indexes that hang), looked at one after another by as few children as do.

    /proc/PID/{environ,cmdline,maps} wait for the process's memory lock, which one in D state may hold for ever: `ps`
    hangs then. A child that stalls on an item is killed, and the next one goes on behind it. One that waits for a
    processor does not hang.
    """
    found: dict[int, Any] = {}
    stuck: list[int] = []
    begin = 0
    while begin < len(items) and len(stuck) < MOST_STUCK and time.monotonic() < until_s:
        try:
            child = Child(lambda begin=begin: _stream(items, begin, work), until_s - time.monotonic())  # type: ignore[misc]
        except OSError:
            break
        last = _follow(child, stall_s, found)
        begin = max(begin, last + 1)
        if begin < len(items):
            stuck.append(begin)
            begin += 1
    return found, stuck


def _stream(items: Sequence[Any], begin: int, work: Callable[[Any], Any]) -> bytes:
    for index in range(begin, len(items)):
        _send(1, json.dumps([index, work(items[index])]).encode() + b"\n")
    return b""


def _follow(child: Child, stall_s: float, found: dict[int, Any]) -> int:
    """The last index that the child answered for."""
    last, rest = -1, b""
    out = next(iter(child.parts))
    poll = select.poll()
    for fd in child.open:
        poll.register(fd, select.POLLIN)
    while child.open:
        ready = poll.poll(stall_s * 1000)
        if time.monotonic() >= child.until_s or not (ready or _runs(child.pid)):
            break
        for fd, _ in ready:
            child.receive(fd)
            if fd not in child.open:
                poll.unregister(fd)
        *lines, rest = (rest + b"".join(child.parts[out])).split(b"\n")
        child.parts[out].clear()
        for line in lines:
            last, answer = json.loads(line)
            found[last] = answer
    child.end(late=bool(child.open))
    return last


def _runs(pid: int) -> bool:
    """Whether a child computes, or would if it had a processor."""
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False


def _be_the_child(work: Work, env: Optional[Mapping[str, str]], out: int, err: int) -> None:
    code = 127
    try:
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGALRM", "SIGPIPE", "SIGXFSZ"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, fd in enumerate((nothing, out, err)):
            os.dup2(fd, number)
        os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
        os.chdir("/")
        if callable(work):
            _send(1, work())
            code = 0
        else:
            os.execvpe(work[0], list(work), dict(os.environ if env is None else env))  # noqa: S606 - no shell
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        with contextlib.suppress(OSError):
            os.write(2, ("%s: %s" % (type(error).__name__, error)).encode(errors="replace"))
    finally:
        os._exit(code)


def _send(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def _reap(pid: int, within_s: float) -> Optional[int]:
    """Its exit code, negative for a signal; None while it has not ended."""
    until_s, pause_s = time.monotonic() + within_s, 0.0002
    while True:
        try:
            gone, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if gone:
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if time.monotonic() >= until_s:
            return None
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.005)
