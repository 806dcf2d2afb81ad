"""Files written so that they survive a power cut, and so that a reader sees a whole one or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from safelaunch.adapters import modes

Sync = Callable[[int], object]   # what makes an open file durable


class SyncLater(contextlib.AbstractContextManager["SyncLater"]):
    """Files that are made durable together, by `now`, after all have been written."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def add(self, descriptor: int) -> None:
        """Sync this one later; its owner may close it."""
        self._descriptors.append(os.dup(descriptor))

    def now(self) -> None:
        """Sync all; raises OSError."""
        for descriptor in self._descriptors:
            os.fsync(descriptor)

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


def write(descriptor: int, data: bytes, sync: Sync = os.fsync) -> None:
    """Write all of `data`, and sync it; raises OSError. A full disk takes a part first, then says ENOSPC."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]
    sync(descriptor)


def put(path: Path, data: bytes, mode: int = modes.FILE) -> None:
    """Write `data` to a draft beside `path` and rename it; raises OSError, and `path` is as before then."""
    draft = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    write_draft(draft, data, mode)
    draft.replace(path)


def write_draft(draft: Path, data: bytes, mode: int = modes.FILE) -> None:
    """Write `data` to `draft` durably; raises OSError, and leaves no draft then. Its group may read it (modes)."""
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()   # it may still be linked to the claim it made: never write to it
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        modes.open_to_group(descriptor, draft.parent)
        write(descriptor, data)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    finally:
        os.close(descriptor)
