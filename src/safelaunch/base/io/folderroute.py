"""The names on the way to a folder, as this host sees them: by them a removed folder is told from one that is away."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

MOST_LINKS = 40   # as the kernel has it: path_resolution(7)
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def route(folder: str) -> list[tuple[str, int, int]]:
    """(path, device, inode) of each name on the way, "/" first; what a link points to follows it. Raises OSError."""
    found: dict[str, tuple[str, int, int]] = {}
    waiting, here, links = _parts(folder), "/", 0
    _add(found, here)
    while waiting:
        name = waiting.pop(0)
        if name == "..":
            here = os.path.dirname(here)   # noqa: PTH120 - of a path without links
            continue
        path = f"{here.rstrip('/')}/{name}"
        status = _add(found, path)
        if not stat.S_ISLNK(status.st_mode):
            here = path
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)
        target = os.readlink(path)   # noqa: PTH115 - a text
        waiting = [*_parts(target), *waiting]
        here = "/" if target.startswith("/") else here
    return list(found.values())


def look(places: Sequence[str]) -> tuple[list[tuple[int, int]], bool | None]:
    """(device, inode) of each of these places up to the first that is missing; whether the folder above that one lists
    it (None: it cannot be listed). Raises OSError where a place does not answer.
    """
    ids: list[tuple[int, int]] = []
    for path in places:
        try:
            status = os.lstat(path)
        except OSError as error:
            if error.errno not in ABSENT:
                raise
            return ids, _lists(path)
        ids.append((status.st_dev, status.st_ino))
    return ids, None


def _lists(path: str) -> bool | None:
    folder, _, name = path.rpartition("/")
    try:
        with os.scandir(folder or "/") as entries:
            return any(entry.name == name for entry in entries)
    except NotADirectoryError:   # a file has its name now
        return False
    except OSError:
        return None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _add(found: dict[str, tuple[str, int, int]], path: str) -> os.stat_result:
    status = os.lstat(path)
    found.setdefault(path, (path, status.st_dev, status.st_ino))
    return status
