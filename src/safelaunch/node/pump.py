"""The log pump: copies a growing node-local spool to the shared log, so that no rank waits for the shared filesystem.

    srun … >>SPOOL 2>&1        a regular file on a local disk: srun never blocks, and no pump can take a line with it
    python3 -I pump.py --spool SPOOL --target TARGET [--keep-mb 16] [--pid-file FILE] [--once]

Seen in a real training: a rank slept for ever in a log write to a frozen filesystem, and 64 GPUs with it. Here only the
pump sleeps; after the thaw it catches up. Only the pump writes TARGET, and byte n of it is byte n of SPOOL. So the size
of TARGET tells where to go on. A pump killed at any byte, and started again, loses and doubles nothing.

SIGTERM, or its parent gone and SPOOL deleted: copy until it has been still for `QUIET_S`, fsync, leave. Run it again
(`--once`) when the writer has gone.
Exit codes: 0 all copied · 2 usage, or no spool · 3 another pump works on this spool · 4 told to leave, not all copied.

Plain read and write: sendfile and copy_file_range were no faster (each 2-4 GB/s in the page cache), and at times five
times slower. One file, standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import select
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence

try:
    import ctypes
except ImportError:  # a python built without libffi: polls instead of inotify, and punches no holes
    ctypes = None  # type: ignore[assignment]

CHUNK_BYTES = 1 << 20
SYNC_BYTES = 64 << 20  # the spool can outgrow --keep-mb by this much
SYNC_AFTER_S = 1.0  # other hosts see an NFS file grow only when the writer flushes
BATCH_S = 0.02  # 64 ranks write 10,000 lines a second; the shared filesystem gets 50 writes a second instead
IDLE_S = 1.0  # inotify wakes the pump; this is for a filesystem that has no events
POLL_S = (0.02, 0.1)  # without inotify; the upper one is the promised latency of a line
RETRY_S = (0.2, 5.0)
QUIET_S = 0.2
DRAIN_S = 60.0  # after SIGTERM; Slurm's default KillWait is 30
LOCK_S = 2.0
FILE_MODE, GROUP_FILE_MODE = 0o600, 0o640  # as base/io/modes.py, which this file cannot import
BLOCK_BYTES = 4096

IN_MODIFY = 0x2  # sys/inotify.h
IN_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
PUNCH_HOLE_KEEP_SIZE = 0x2 | 0x1  # linux/falloc.h


class Stop:
    """Whether somebody asked the pump to leave; wakes a waiting pump."""

    def __init__(self) -> None:
        self.at_s: Optional[float] = None
        self.reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def ask(self, *_: object) -> None:
        """Ask the pump to leave (also a signal handler)."""
        if self.at_s is None:
            self.at_s = time.monotonic()

    def is_overdue(self) -> bool:
        """True when a pump that was asked to leave has had its time."""
        return self.at_s is not None and time.monotonic() > self.at_s + DRAIN_S

    def wait(self, timeout_s: float, *others: int) -> bool:
        """Wait for a signal or for one of `others`; True where an other is readable."""
        poll = select.poll()
        for number in (self.reader, *others):
            poll.register(number, select.POLLIN)
        ready = [number for number, _ in poll.poll(max(0.0, timeout_s) * 1000)]
        if self.reader in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.reader, 4096)
        return any(number in ready for number in others)


class Growth:
    """Waits until a file grows: by inotify where the kernel offers it, else by looking."""

    def __init__(self, path: Path, stop: Stop) -> None:
        self._stop = stop
        self._inotify = _watch(path)
        self._pause_s = POLL_S[0]

    def wait(self, spool: int, size: int, timeout_s: float) -> bool:
        """Wait for `spool` to be longer than `size`, for a signal, or for the timeout; True where it has grown."""
        until_s = time.monotonic() + timeout_s
        while os.fstat(spool).st_size == size and (left_s := until_s - time.monotonic()) > 0:
            stopping_before = self._stop.at_s
            if self._inotify is not None:
                self._wait_for_event(spool, size, min(left_s, IDLE_S))
            else:
                self._stop.wait(min(left_s, self._pause_s))
                self._pause_s = min(self._pause_s * 2, POLL_S[1])
            if self._stop.at_s != stopping_before:
                break
        if os.fstat(spool).st_size == size:
            return False
        self._pause_s = POLL_S[0]
        return True

    def _wait_for_event(self, spool: int, size: int, timeout_s: float) -> None:
        assert self._inotify is not None
        if self._stop.wait(timeout_s, self._inotify):
            os.read(self._inotify, 1 << 16)
        elif os.fstat(spool).st_size != size and not self._stop.wait(BATCH_S, self._inotify):
            # Grown without an event (an overlay, a network disk): look from now on.
            os.close(self._inotify)
            self._inotify = None


class Pump:
    """One spool, one target, and how far it got."""

    def __init__(self, spool: int, names: tuple[Path, Path], keep_mb: int, stop: Stop) -> None:
        self._spool = spool
        self._spool_path, self._target_path = names
        self._keep_bytes = keep_mb << 20
        self._stop = stop
        self._parent = os.getppid()
        self._growth = Growth(self._spool_path, stop)
        self._target: Optional[int] = None
        self._shift = 0  # byte n of the spool is byte n + shift of the target; 0 but for a target that was longer
        self._position = 0  # the spool is copied up to here
        self._synced = 0  # and this much of it is known to be durable
        self._synced_at_s = time.monotonic()
        self._punched = 0
        self._trouble = ""
        self._trouble_since_s = 0.0
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._ranks: Any = None   # node.ranklogs.LogSplit, where the run wants them

    def run(self) -> int:
        """Copy until told to stop and all is copied; the exit code."""
        retry_s = RETRY_S[0]
        while True:
            try:
                if self._work():
                    return self._leave()
                retry_s = RETRY_S[0]
            except OSError as error:  # ENOSPC EDQUOT EIO ESTALE EROFS EACCES ENOENT …: the spool keeps it all meanwhile
                self._complain(error)
                self._close_target()
                self._stop.wait(retry_s)
                retry_s = min(retry_s * 2, RETRY_S[1])
                if self._stop.is_overdue():
                    return self._leave()

    def _work(self) -> bool:
        """One round: copy what there is, make it durable when it is time, wait for more; True when all is done."""
        if self._target is None:
            self._open_target()
        size = os.fstat(self._spool).st_size
        if size < self._position:
            _say(f"{self._spool_path} was cut from {self._position} bytes; going on with the {size} that it has now")
            self._shift += self._position   # by `echo … > /dev/stderr`: what stands there now is new
            self._position = self._synced = self._punched = 0
        if self._position < size:
            self._copy_up_to(min(size, self._synced + SYNC_BYTES))
            self._recover()
        elif self._stop.at_s is not None:
            return self._drain()
        waited_s = time.monotonic() - self._synced_at_s
        if self._position - self._synced >= SYNC_BYTES or (self._position > self._synced and waited_s >= SYNC_AFTER_S):
            self._sync()
        if self._position == os.fstat(self._spool).st_size:
            if os.getppid() != self._parent and os.fstat(self._spool).st_nlink == 0:
                self._stop.ask()   # its folder is gone with the job, and nobody is left who would ask
            self._wait(SYNC_AFTER_S - waited_s if self._position > self._synced else IDLE_S)
        return False

    def _wait(self, timeout_s: float) -> None:
        if not self._split_ranks():
            return   # a piece of what was there before: the log itself comes first
        if self._stop.at_s is None:
            self._stop.wait(min(BATCH_S, timeout_s))
        if self._stop.at_s is None:
            self._growth.wait(self._spool, self._position, timeout_s)

    def _drain(self) -> bool:
        """True when the spool has been still for QUIET_S, or never is, and what was copied is durable."""
        has_grown = self._growth.wait(self._spool, self._position, QUIET_S)
        if has_grown and not self._stop.is_overdue():
            return False
        self._sync()
        return has_grown or os.fstat(self._spool).st_size == self._position

    def _leave(self) -> int:
        while not self._split_ranks() and not self._stop.is_overdue():
            pass
        self._for_ranks(lambda ranks: ranks.end())
        left = os.fstat(self._spool).st_size - self._position
        if not left:
            return 0
        _say(f"told to stop {DRAIN_S:.0f} s ago, and leaving {left} bytes of {self._spool_path} uncopied; run it again")
        return 4

    def _open_target(self) -> None:
        """Open the target and find where to go on: what it holds need not be copied again."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._target = os.open(self._target_path, flags, FILE_MODE)
        status = os.fstat(self._target)
        if not status.st_size and os.stat(self._target_path.parent).st_mode & stat.S_ISGID:
            os.fchmod(self._target, GROUP_FILE_MODE)
        held = status.st_size - self._shift
        size = os.fstat(self._spool).st_size
        if held > size:
            _say(f"{self._target_path} is {held - size} bytes longer than {self._spool_path}; going on at its end")
            self._shift += held - size
            held = self._synced = size
        # After an error what no fsync has confirmed may be lost in spite of the size (fsync(2), EIO): copied again.
        position = min(held, self._synced) if self._trouble else held
        first = _first_data(self._spool, max(0, position), size)
        if first > max(0, held):
            _say(f"{self._target_path} was cut to {held} bytes and the spool keeps none before {first}: they are gone")
        self._position = max(0, position, first)
        self._synced = min(self._synced, self._position)
        self._open_ranks()

    def _open_ranks(self) -> None:
        """One file for each rank as well (launch.logs), where the leader has written so beside the spool."""
        facts = self._spool_path.with_suffix(".json")

        def begin(_: None) -> None:
            sys.path.insert(0, str(Path(__file__).parents[2]))   # under -I nothing else says where the package is
            from safelaunch.node.ranklogs import LogSplit
            self._ranks = LogSplit(str(facts), str(self._target_path), str(facts.with_suffix(".ranks")))
        with contextlib.suppress(FileNotFoundError):
            if self._ranks is None and b'"rank_logs"' in facts.read_bytes():
                self._for_ranks(begin, is_begun=False)

    def _for_ranks(self, what: Callable[[Any], object], is_begun: bool = True) -> object:
        """What this says of the ranks' files, if there are any; what fails with them must not hold the log."""
        try:
            return what(self._ranks) if self._ranks is not None or not is_begun else None
        except (ImportError, OSError, ValueError, LookupError, TypeError) as error:
            _say(f"one file for each rank: {error!r}; `safelaunch logs --rank N` shows the lines of one")
            self._ranks = None
        return None

    def _split_ranks(self) -> bool:
        """Whether all that was copied is in the ranks' files, too; if not, some more is now."""
        return self._for_ranks(lambda ranks: ranks.catch_up(self._position + self._shift)) is not False

    def _copy_up_to(self, end: int) -> None:
        assert self._target is not None
        while self._position < end:
            size = os.preadv(self._spool, [self._buffer[:min(CHUNK_BYTES, end - self._position)]], self._position)
            if size == 0:  # cut meanwhile; the next round says so
                return
            part, at = self._buffer[:size], self._position + self._shift
            size = os.pwrite(self._target, part, at)
            self._position += size
            self._for_ranks(lambda ranks, at=at, part=part[:size]: ranks.feed(at, bytes(part)))   # type: ignore[misc]

    def _sync(self) -> None:
        """Make the copied part durable and give its blocks in the spool back; reopen a target that was replaced."""
        assert self._target is not None
        os.fsync(self._target)
        self._synced_at_s = time.monotonic()
        if not os.path.samestat(self._target_path.lstat(), os.fstat(self._target)):
            _say(f"{self._target_path} was replaced; going on in the new file")
            self._synced = 0
            self._close_target()
            return
        self._synced = self._position
        self._recover()
        end = (self._synced - self._keep_bytes) // BLOCK_BYTES * BLOCK_BYTES
        if end - self._punched >= SYNC_BYTES:
            _punch(self._spool, end)
            self._punched = end

    def _close_target(self) -> None:
        if self._target is not None:
            with contextlib.suppress(OSError):  # it is closed all the same: close(2)
                os.close(self._target)
            self._target = None

    def _complain(self, error: OSError) -> None:
        """Say once what is wrong, not at every retry."""
        if self._trouble != str(error.strerror):
            if not self._trouble:
                self._trouble_since_s = time.monotonic()
            self._trouble = str(error.strerror)
            _say(f"cannot copy {self._spool_path} to {self._target_path}: {error.strerror}; it waits in the spool")

    def _recover(self) -> None:
        if self._trouble:
            for_s = time.monotonic() - self._trouble_since_s
            _say(f"{self._target_path} can be written again after {for_s:.1f} s ({self._trouble})")
            self._trouble = ""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The exit code of the command line `argv`."""
    options = _parse(argv)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        # scancel -s USR2 J.0 reaches every process of the step, and those without a handler die of it.
        signal.signal(number, signal.SIG_IGN)
    stop = Stop()
    signal.signal(signal.SIGTERM, stop.ask)
    if options.once:
        stop.ask()
    try:
        spool = os.open(options.spool, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        _say(f"cannot open the spool {options.spool}: {error.strerror}")
        return 2
    if not _lock(spool, stop):
        _say(f"another pump works on {options.spool}")
        return 3
    with _named_in(options.pid_file):
        return Pump(spool, (options.spool, options.target), options.keep_mb, stop).run()


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pump", description="Copy a growing local file to a shared one.")
    parser.add_argument("--spool", type=Path, required=True, help="the local file that srun writes")
    parser.add_argument("--target", type=Path, required=True, help="the log on the shared folder")
    parser.add_argument("--keep-mb", type=int, default=16, help="how much of the copied part the spool keeps")
    parser.add_argument("--pid-file", type=Path, help="holds this pump's process id while it runs")
    parser.add_argument("--once", action="store_true", help="copy what is there, and leave")
    return parser.parse_args(argv)


def _lock(spool: int, stop: Stop) -> bool:
    """True once no other pump works on this spool; one that is being replaced needs a moment to die."""
    until_s = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(spool, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until_s:
                return False
            stop.wait(0.05)


@contextlib.contextmanager
def _named_in(pid_file: Optional[Path]) -> Iterator[None]:
    """Keep this process's id in `pid_file` meanwhile; where it cannot be written the log matters more."""
    if pid_file is None:
        yield
        return
    draft = pid_file.with_name(f"{pid_file.name}.{os.getpid()}")
    try:
        draft.write_text(f"{os.getpid()}\n")
        draft.replace(pid_file)
    except OSError as error:
        _say(f"cannot write {pid_file}: {error.strerror}")
    yield
    with contextlib.suppress(OSError):
        pid_file.unlink()


def _first_data(spool: int, position: int, size: int) -> int:
    """The first byte from `position` on that the spool still has: an earlier pump punched holes behind itself."""
    if position >= size:
        return position
    try:
        return os.lseek(spool, position, os.SEEK_DATA)
    except OSError:  # ENXIO: nothing but hole up to the end; EINVAL: a filesystem without holes
        return position


def _watch(path: Path) -> Optional[int]:
    """An inotify descriptor for writes to `path`; None where none is to be had (fs.inotify.max_user_instances)."""
    if ctypes is None:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    watch: int = libc.inotify_init1(IN_FLAGS)
    if watch < 0:
        return None
    if libc.inotify_add_watch(watch, os.fsencode(path), IN_MODIFY) < 0:
        os.close(watch)
        return None
    return watch


def _punch(spool: int, end: int) -> None:
    """Give the blocks before `end` back to the local disk; the size stays. Where that is not supported, they stay."""
    if ctypes is not None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate(spool, PUNCH_HOLE_KEEP_SIZE, ctypes.c_longlong(0), ctypes.c_longlong(end))


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a closed or full stderr is no reason to stop copying
        print(f"safelaunch pump: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
