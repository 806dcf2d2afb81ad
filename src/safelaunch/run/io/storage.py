"""Whether folders can be written at all, as far as that shows without writing into them."""

from __future__ import annotations

import os
from collections.abc import Iterable


def find_trouble(folders: Iterable[str]) -> str | None:
    """What keeps the first of the folders from being written; None = nothing that statvfs(3) shows.

    It shows no quota, nor that only root may take the last blocks. Blocks where the folder does.
    """
    for folder in folders:
        try:
            status = os.statvfs(folder)
        except FileNotFoundError:
            continue   # the training makes it
        except OSError as error:
            return f"{folder}: {error.strerror}"
        if status.f_flag & os.ST_RDONLY:
            return f"{folder} is mounted read-only"
        if status.f_blocks and not status.f_bavail:
            return f"{folder} is full"
        if status.f_files and not status.f_ffree:
            return f"{folder} has no inodes left"
    return None


# A file without a name where the filesystem can (open(2), O_TMPFILE), else one that is removed at once.
_TRY = """import contextlib, os, sys, tempfile
for folder in sys.argv[1:]:
    with contextlib.suppress(OSError):   # an error is an answer
        try:
            fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
        except (IsADirectoryError, NotADirectoryError):
            continue
        except OSError:
            fd, name = tempfile.mkstemp(prefix=".safelaunch-probe-", dir=folder)
            os.unlink(name)
        os.write(fd, b"x")
        os.fsync(fd)
"""


def try_to_write(folders: Iterable[str], python: str) -> tuple[str, ...]:
    """A command that writes a byte into each of the folders and leaves no file: it ends when they all answer.

    The node's own `python` runs it: one on the shared folder would hang before it could try anything.
    """
    return (python, "-I", "-S", "-c", _TRY, *folders)
