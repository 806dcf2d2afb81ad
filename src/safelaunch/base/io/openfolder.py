"""Opening a folder where other people can write: what is done in it is done by the descriptor, not by its name.

A run folder can be another user's, and a verb on it may make, rename and delete names in its `control`. A link there,
or on the way to it, would aim the verb at a run of whoever types it; an administrator could be aimed at anybody's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from safelaunch.base.io.owners import name_of
from safelaunch.base.io.sharedfile import OddFile

MOST_LINKS = 40   # of one path, as the kernel's: path_resolution(7)
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def named(path: Path) -> Iterator[int]:
    """A folder that a person names, to be used as a dir_fd. A link on the way counts where root, this user or the
    folder's owner made it. Raises OSError, OddFile for another's link.
    """
    path.stat()   # has an automounter mount it: a step with O_PATH would not, open(2)
    folder = _walk(path)
    try:
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def inside(run_dir: Path, name: str) -> Iterator[int]:
    """The same of a run's sub-folder, which is no link and belongs to the run folder's owner."""
    with named(run_dir) as run:
        folder = os.open(name, _STEP, dir_fd=run)
        try:
            status, of_run = os.fstat(folder), os.fstat(run)
            if not stat.S_ISDIR(status.st_mode):
                raise OddFile(errno.ELOOP, f"{name_of(status.st_uid)} has put something in place of the folder",
                              str(run_dir / name))
            if status.st_uid != of_run.st_uid:
                raise OddFile(errno.ELOOP, f"it belongs to {name_of(status.st_uid)}, and the run to "
                                           f"{name_of(of_run.st_uid)}",
                              str(run_dir / name))
            yield folder
        finally:
            os.close(folder)


def _walk(path: Path) -> int:
    """A descriptor (O_PATH) of the folder, each part opened in the one before it."""
    links: list[tuple[str, os.stat_result]] = []
    left = list(reversed(path.parts))
    here = os.open(".", _STEP)
    try:
        while left:
            part = left.pop()
            there = os.open(part, _STEP, dir_fd=here)
            status = os.fstat(there)
            if stat.S_ISLNK(status.st_mode):
                links.append((part, status))
                left += reversed(Path(os.readlink("", dir_fd=there)).parts)
                os.close(there)
                if len(links) > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            else:
                os.close(here)
                here = there
        _check(here, links, path)
    except OSError:
        os.close(here)
        raise
    return here


def _check(folder: int, links: list[tuple[str, os.stat_result]], path: Path) -> None:
    end = os.fstat(folder)
    if not stat.S_ISDIR(end.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    for part, status in links:
        if status.st_uid not in (0, os.geteuid(), end.st_uid):
            raise OddFile(errno.ELOOP, f"{part} is a link of {name_of(status.st_uid)}'s that leads into a folder of "
                                       f"{name_of(end.st_uid)}'s", str(path))
