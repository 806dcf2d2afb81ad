"""Files written so that they survive a power cut, and so that a reader sees a whole one or none."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from safelaunch.adapters import modes


def write(descriptor: int, data: bytes) -> None:
    """Write all of `data`, and fsync; raises OSError. A full disk takes a part first, then says ENOSPC."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]
    os.fsync(descriptor)


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
