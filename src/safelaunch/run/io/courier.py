"""The courier: a child that delivers the outbox to the shared folder, and hangs there instead of its leader.

It takes the frames in order, tries each until it is durable on the shared folder, marks it in the outbox, and tells the
leader. When the leader is gone it delivers what is left. Lines to the leader: `done <seq>` and `trouble <text>`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from safelaunch.base.io import durable, modes
from safelaunch.run.io.outbox import APPEND, PUT, Outbox, QueuedWrite

RETRY_S = (0.1, 5.0)
# After the leader's end, for a folder that refuses (read-only, quota): then the outbox waits for the next leader.
ORPHAN_PATIENCE_S = 60.0
UMASK = 0o077
_OPEN = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
# A scancel reaches every process of the step, and the last lines of the journal are written after it.
IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Courier:
    """Delivers outboxes to `root`; lives in a forked child."""

    def __init__(self, root: Path, doorbell: int, answers: int) -> None:
        self._root = root
        self._doorbell = doorbell
        self._answers = answers

    def run(self, outbox: Outbox) -> None:
        """Deliver what dead leaders left on this node, then `outbox` until its leader is gone and all is delivered."""
        self.detach(keep={outbox.fileno()})
        for leftover in Outbox.adopt_all(outbox.path.parent, self._root):
            if not self._deliver_all(leftover, is_own=False):
                return
            leftover.remove()
        outbox.seek_undelivered()
        while self._deliver_all(outbox, is_own=True):
            if not os.read(self._doorbell, 4096):
                # The doorbell has closed: nobody adds frames any more, but a last one may have come before it.
                if self._deliver_all(outbox, is_own=True):
                    outbox.remove()
                return

    def deliver_left(self, folder: Path) -> bool:
        """Deliver what dead leaders left in `folder`; True when nothing is left, also not with another courier."""
        while any(folder.glob("outbox-*")):
            for leftover in Outbox.adopt_all(folder, self._root):
                if not self._deliver_all(leftover, is_own=False):
                    return False
                leftover.remove()
            time.sleep(RETRY_S[0])
        return True

    def detach(self, keep: set[int]) -> None:
        """Release what is the leader's: its files (a socket held here would hide its death), signals, session."""
        with contextlib.suppress(PermissionError):
            os.setsid()
        signal.set_wakeup_fd(-1)
        for number in IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.umask(UMASK)
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - numbers, not paths
            if descriptor > 2 and descriptor not in keep | {self._doorbell, self._answers}:
                with contextlib.suppress(OSError):  # the descriptor of this listing
                    os.close(descriptor)

    def _deliver_all(self, outbox: Outbox, is_own: bool) -> bool:
        """Deliver all frames; False where the folder refuses and the leader has gone."""
        while frames := outbox.undelivered():
            last_put = {frame.name: frame.seq for frame in frames if frame.kind == PUT}
            for frame in frames:
                # An hour of frozen heartbeats is one heartbeat.
                is_stale = frame.kind == PUT and frame.seq < last_put[frame.name]
                if not is_stale and not self._deliver_stubbornly(outbox, frame):
                    return False
                outbox.mark_done(frame.seq)
                if is_own:
                    self.tell(f"done {frame.seq}")
        return True

    def _deliver_stubbornly(self, outbox: Outbox, frame: QueuedWrite) -> bool:
        """Try until it is delivered; False where the leader has gone and the folder still refuses."""
        retry_s, alone_since_s = RETRY_S[0], 0.0
        while True:
            try:
                deliver(self._root, outbox, frame)
                return True
            except OSError as error:
                self.tell(f"trouble {error.strerror}: {self._root / frame.name}")
            if alone_since_s == 0.0 and self._is_alone():
                alone_since_s = time.monotonic()
            if alone_since_s and time.monotonic() - alone_since_s > ORPHAN_PATIENCE_S:
                return False
            time.sleep(retry_s)
            retry_s = min(retry_s * 2, RETRY_S[1])

    def _is_alone(self) -> bool:
        poll = select.poll()
        poll.register(self._doorbell, 0)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def tell(self, text: str) -> None:
        """Tell the leader one line."""
        with contextlib.suppress(BrokenPipeError):  # the leader is gone; the outbox has the mark
            os.write(self._answers, f"{text}\n".encode()[:select.PIPE_BUF])


def main(argv: Sequence[str]) -> NoReturn:
    """Deliver what dead leaders left in the node-local folder `argv[0]` to the run folder `argv[1]`; 1: not all."""
    doorbell, ringing = os.pipe()
    os.close(ringing)   # no leader will ring
    os.umask(UMASK)
    courier = Courier(Path(argv[1]), doorbell, os.open(os.devnull, os.O_WRONLY))
    sys.exit(0 if courier.deliver_left(Path(argv[0])) else 1)


def deliver(root: Path, outbox: Outbox, frame: QueuedWrite) -> None:
    """Write one frame to the folder, durably; raises OSError. A second try finishes what a first one began."""
    path = root / frame.name
    make_folder(root, path.parent)
    if frame.kind == APPEND:
        _append(path, outbox, frame)
    elif frame.kind == PUT:
        durable.put(path, frame.data)


def make_folder(root: Path, folder: Path) -> None:
    """Make `folder` and its parents below `root`, never the root itself: a deleted run folder stays deleted."""
    if folder == root or folder.is_dir():
        return
    make_folder(root, folder.parent)
    with contextlib.suppress(FileExistsError):
        modes.make_folder(folder)


def _append(path: Path, outbox: Outbox, frame: QueuedWrite) -> None:
    """Append durably, and exactly once as long as nobody else writes the file: `begun_at` tells what is there.

    Where somebody else has written too, the whole record follows on a line of its own. Readers then meet it twice, or
    after a torn line, and know it by its (gen, seq).
    """
    descriptor = os.open(path, _OPEN, modes.FILE)
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            modes.open_to_group(descriptor, path.parent)
        begun_at = outbox.begun_at(frame.seq)
        data = frame.data
        if begun_at is None:
            outbox.mark_begun(frame.seq, size)
        elif size != begun_at:
            there = os.pread(descriptor, len(data) + 1, begun_at) if size > begun_at else b""
            if there and data.startswith(there):
                data = data[len(there):]
            else:
                is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                data = b"\n" + data if is_torn else data
                outbox.mark_begun(frame.seq, size + is_torn)
        durable.write(descriptor, data)
    finally:
        os.close(descriptor)
