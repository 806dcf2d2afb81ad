"""What the kernel does when a guard does not run: it kills the guard's ranks while they are stopped."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import sys
import time

from safelaunch.node.light import signal, socket, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KNOWN_S = 1.0          # how old the list of ranks to stop at once may be
F_SETSIG = 10          # linux/fcntl.h


class Switch:
    """The dead man's switch: ranks die with their guard, and a guard that has not run for `after_s` dies.

    A node that was stopped as a whole wakes as a whole: its ranks would write before any process of ours runs. So the
    kernel acts while they are still stopped. A timer of the guard sends it SIGKILL. Its death closes the write ends of
    two pipes. Each rank owns read ends that answer with SIGKILL (F_SETOWN, F_SETSIG, O_ASYNC). On Linux 6.18 the higher
    descriptor closes first (measured); the two pipes cover both orders.

    A guard in a frozen control group dies only after the thaw: `Fuses` cover that.

    A frozen disk with the guard's own code must end nobody. So the timer is armed only when the guard's memory is
    locked, or its interpreter is the node's own.
    """

    MAX_RANKS = 128   # two descriptors each; the soft limit is 1024 nearly everywhere

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self.is_made = False
        self.readers: list[int] = []
        self.writers: list[int] = []
        self.ends: dict[int, tuple[int, ...]] = {}
        self.timer: Any = None
        self.fuses: Fuses | None = None

    def make(self) -> None:
        """Ask the kernel for all of it, once. A Python built without libffi has no ctypes, and so no switch."""
        if self.is_made:
            return
        self.is_made = True
        try:
            import ctypes
        except ImportError:
            return
        self.ctypes, self.libc = ctypes, ctypes.CDLL(None, use_errno=True)
        locked = self.libc.mlockall(1) == 0   # MCL_CURRENT
        if not (locked or is_nodes_own()):
            return
        try:
            low, high = os.pipe(), os.pipe()
            top = fcntl.fcntl(high[1], fcntl.F_DUPFD_CLOEXEC, 4 * self.MAX_RANKS)
            os.close(high[1])
            self.readers, self.writers = [low[0], high[0]], [low[1], top]
            timer = ctypes.c_void_p()
            event = (ctypes.c_int * 16)(0, 0, signal.SIGKILL, 0)   # sigevent: value (8 bytes), signo, SIGEV_SIGNAL
            if self.libc.timer_create(1, event, ctypes.byref(timer)) == 0:   # CLOCK_MONOTONIC
                self.timer = timer
        except (OSError, AttributeError):
            self.timer = None
        with suppress(OSError, AttributeError):
            self.fuses = Fuses(self.after_s + KNOWN_S)

    def watch(self, pids: list[int]) -> None:
        """Tie these ranks to this process; release those that have gone."""
        if not self.writers:
            return
        for pid in [pid for pid in self.ends if pid not in pids]:
            for end in self.ends.pop(pid):
                os.close(end)
        for pid in pids:
            if pid not in self.ends and len(self.ends) < self.MAX_RANKS:
                with suppress(OSError):
                    self.ends[pid] = tuple(self._tie(reader, pid) for reader in self.readers)
        if self.fuses is not None:
            self.fuses.renew(pids[:self.MAX_RANKS])

    @staticmethod
    def _tie(reader: int, pid: int) -> int:
        end = os.open("/proc/self/fd/%d" % reader, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(end, fcntl.F_SETOWN, pid)
        fcntl.fcntl(end, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        return end

    def rearm(self) -> None:
        """This process runs: count from now."""
        self._set(self.after_s)

    def disarm(self) -> None:
        """Never end this process, nor the ranks while it lives."""
        self._set(0.0)
        if self.fuses is not None:
            self.fuses.remove()

    def _set(self, after_s: float) -> None:
        if self.timer is not None:
            whole = int(after_s)
            times = (self.ctypes.c_long * 4)(0, 0, whole, int((after_s - whole) * 1e9))
            self.libc.timer_settime(self.timer, 0, times, None)

    def forget_in_child(self) -> None:
        """Close the pipes in a forked child, and its fuses: they must not outlive the parent."""
        for writer in self.writers:
            with suppress(OSError):
                os.close(writer)
        if self.fuses is not None:
            self.fuses.remove()


class Fuses:
    """SIGKILL for each rank once this process has not renewed it for `after_s`, sent by the kernel alone.

    `scontrol suspend` freezes a job in its control group where Slurm tracks processes by cgroups. A frozen process is
    not even killed before the thaw (cgroup v1's freezer), and the guard then dies more slowly than a rank writes. Each
    of four ranks made a step 0.4 to 8 ms after the thaw, six times of six (measured, Linux 6.18). A rank with a
    SIGKILL pending makes none.

    Of what a user may have, only sockets have a timer that runs while the process does not, and a signal for another
    process. So each fuse is a connection to this process's own endpoint, which drops all that came over a router or
    more (IP_MINTTL: RFC 5082). It fails after TCP_USER_TIMEOUT (tcp(7)), and its owner is the rank (F_SETOWN in
    fcntl(2)). A socket filter instead is root's alone (EPERM, Linux 6.18). Nothing leaves the loopback device, and of
    the counters of dropped packets only TCPMinTTLDrop goes up.
    """

    TRIAL_S = 1.5    # the first repetition comes after 1 s (RFC 6298)
    IP_MINTTL = 21   # linux/in.h

    def __init__(self, after_s: float) -> None:
        self.after_ms = int(after_s * 1000)
        self.lit: dict[int, socket.socket] = {}
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.setsockopt(socket.IPPROTO_IP, self.IP_MINTTL, 255)
        self.listener.listen(1)
        # A node whose loopback device answers instead of the endpoint (a firewall) must not end anybody.
        self.trial: socket.socket | None = self._knock()
        self.tried_at = time.monotonic()
        self.is_silent = False

    def renew(self, pids: list[int]) -> None:
        """Count from now for these ranks, and no more for all others."""
        if self.trial is not None and time.monotonic() - self.tried_at > self.TRIAL_S:
            _, answered, _ = select.select([], [self.trial], [], 0)
            self.is_silent = not answered
            self.trial.close()
            self.trial = None
        fresh = {}
        for pid in pids if self.is_silent else ():
            with suppress(OSError):
                fresh[pid] = self._light(pid)
        self.remove()
        self.lit = fresh

    def remove(self) -> None:
        """Count for nobody from now on."""
        for fuse in self.lit.values():
            fuse.close()
        self.lit = {}

    def _light(self, pid: int) -> socket.socket:
        fuse = self._knock()
        fcntl.fcntl(fuse, fcntl.F_SETOWN, pid)
        fcntl.fcntl(fuse, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fuse, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        return fuse

    def _knock(self) -> socket.socket:
        """A connection that waits for an answer; OSError where it does not."""
        fuse = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        fuse.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self.after_ms)
        fuse.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 127)   # the time alone decides
        fuse.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 64)   # below the endpoint's, whatever the node's default is
        number = fuse.connect_ex(self.listener.getsockname())
        if number != errno.EINPROGRESS:
            raise OSError(number, os.strerror(number))
        return fuse


def is_nodes_own() -> bool:
    """Whether this interpreter lies on the node's own disk, as /usr does."""
    return sys.executable.startswith("/usr/")
