"""Files written so that they survive a power cut, and so that a reader sees a whole one or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from safelaunch.base.io import modes, sharedfile

Sync = Callable[[int], object]   # what makes an open file durable


class SyncLater(contextlib.AbstractContextManager["SyncLater"]):
    """Files that are made durable together, by `now`, after all have been written; later ones at once."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self._is_over = False

    def sync(self, descriptor: int) -> None:
        """Make what is in this open file durable: with the others, or now if they are. Raises OSError."""
        if self._is_over:
            os.fsync(descriptor)
        else:
            self._descriptors.append(os.dup(descriptor))

    def now(self) -> None:
        """Make all durable; raises OSError."""
        for descriptor in self._descriptors:   # all begin to be written, so that ext4 commits its journal once
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        for descriptor in self._descriptors:
            os.fsync(descriptor)
        self._is_over = True

    def __exit__(self, *_: object) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def write(descriptor: int, data: bytes, sync: Sync = os.fsync) -> None:
    """Write all of `data`, and sync it; raises OSError. A full disk takes a part first, then says ENOSPC."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]
    sync(descriptor)


def put(path: Path, data: bytes, mode: int = modes.FILE, sync: Sync = os.fsync, *, for_all: bool = False) -> None:
    """Write `data` to a draft beside `path` and rename it; raises OSError, and `path` is as before then. `for_all`: it
    has this mode whatever the umask.
    """
    write_draft(path, data, mode, sync, for_all=for_all).replace(path)


def publish(path: Path, data: bytes, is_ours: Callable[[Path, bytes], bool] = sharedfile.holds,
            sync: Sync = os.fsync) -> bool:
    """Whether `path` is ours now, by link(): the name appears whole, and once. Raises OSError where nobody knows.
    `is_ours` looks at a name that is there already.
    """
    draft = write_draft(path, data, sync=sync)
    try:
        return link(draft, path, lambda: is_ours(path, data))
    finally:
        with contextlib.suppress(OSError):  # a leftover draft harms nobody; a won claim called unknown would
            draft.unlink()


def link(draft: Path, path: Path, is_ours: Callable[[], bool]) -> bool:
    """Whether `path` is a second name of `draft`. `is_ours` looks at a name that is there. OSError: nobody knows."""
    try:
        os.link(draft, path)
    except FileExistsError:
        # Over NFS the answer to a link can be lost, and its repetition says "exists" to the winner: link(2), open(2).
        return draft.stat().st_nlink == 2 or is_ours()
    except OSError:
        if draft.stat().st_nlink == 2:
            return True
        raise
    return True


def write_draft(
    path: Path, data: bytes, mode: int = modes.FILE, sync: Sync = os.fsync, *, for_all: bool = False
) -> Path:
    """Write `data` durably to a draft beside `path`; its group may read it (modes). OSError: there is no draft then."""
    draft = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()   # it may still be linked to the claim it made: never write to it
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        modes.open_to_group(descriptor, draft.parent)
        if for_all:   # not by path, once it has its name: somebody may have put a link to another file there by then
            os.fchmod(descriptor, mode)
        write(descriptor, data, sync)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    finally:
        os.close(descriptor)
    return draft
