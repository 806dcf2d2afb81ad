"""print0 and print_locked: for people who print while they look for a fault in a training of many ranks.

Standard library, Python 3.8, no import of safelaunch's: this file may be copied beside a training.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path

RANK_KEYS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
WAIT_S = 5.0    # for the lock: a rank that is stopped while it holds it must not stop the others
# torchrun looks at its ranks' output every 0.1 s (torch/distributed/elastic/multiprocessing/tail_log.py). A rank that
# prints sooner after another one mixes its lines with those of the other all the same.
SETTLE_S = 0.2


def print0(*words: object, **how: object) -> None:
    """print, on rank 0 alone, and at once."""
    rank = next((os.environ[key] for key in RANK_KEYS if os.environ.get(key)), "0")
    if rank == "0":
        builtins.print(*words, **{"flush": True, **how})  # type: ignore[call-overload]


def print_locked(*words: object, settle_s: float = SETTLE_S, **how: object) -> None:
    """print at once, the lines of one call together: the other ranks of this node wait until it is written.

    Each call takes `settle_s` longer, and each rank of the node waits for its turn: nothing for every step. Without a
    lock (a full disk, a rank that holds it for too long) it prints all the same.
    """
    lock = _take_lock()
    try:
        builtins.print(*words, **{"flush": True, **how})  # type: ignore[call-overload]
        if lock >= 0:
            time.sleep(settle_s)
    finally:
        if lock >= 0:
            os.close(lock)


def _take_lock() -> int:
    """The descriptor that holds this user's lock of this node, or -1."""
    folder = Path(os.environ.get("SAFELAUNCH_LOCAL_DIR", "/tmp")) / f"safelaunch-{os.getuid()}"  # noqa: S108
    fd = -1
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
            return -1   # somebody else's: nothing is opened there
        fd = os.open(folder / "print.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        end_s = time.monotonic() + WAIT_S
        while time.monotonic() < end_s:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            time.sleep(0.005)
    if fd >= 0:
        os.close(fd)
    return -1
