"""Deleting what lies in a folder, by descriptor: no link is followed, no other user's or device's folder is touched."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from safelaunch.errors import RunFolderError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_own(path: str) -> int:
    """A descriptor of one's own folder, which is no link; raises RunFolderError."""
    try:
        folder = os.open(path, _FOLDER)
    except OSError as error:
        raise RunFolderError(f"{path} is not deleted: {error.strerror} (a link, or no folder?)") from error
    if os.fstat(folder).st_uid != os.geteuid():
        os.close(folder)
        raise RunFolderError(f"{path} is not deleted: it is another user's")
    return folder


def names_in(folder: int) -> list[str]:
    """The names in an open folder. Raises OSError."""
    return os.listdir(folder)


def size_of(folder: int, name: str) -> int:
    """Bytes below an entry of an open folder, as `remove` would delete it. Raises OSError, and RunFolderError."""
    status = _status(folder, name)
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    return _in_folder(folder, name, lambda inner: sum(size_of(inner, one) for one in names_in(inner)))


def remove(folder: int, name: str) -> None:
    """Delete an entry of an open folder and all below it; a link itself, never what it leads to. Raises OSError and
    RunFolderError, and then has deleted a part.
    """
    status = _status(folder, name)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return

    def empty(inner: int) -> int:
        if not os.path.samestat(status, os.fstat(inner)):
            raise RunFolderError(f"{name} is not deleted: it has been replaced meanwhile")
        for one in names_in(inner):
            remove(inner, one)
        return 0

    _in_folder(folder, name, empty)
    os.rmdir(name, dir_fd=folder)


def _status(folder: int, name: str) -> os.stat_result:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    is_folder = stat.S_ISDIR(status.st_mode)
    if is_folder and (status.st_uid != os.geteuid() or status.st_dev != os.fstat(folder).st_dev):
        raise RunFolderError(f"{name} in it is another user's, or lies on another filesystem")
    return status


def _in_folder(folder: int, name: str, act: Callable[[int], int]) -> int:
    inner = os.open(name, _FOLDER, dir_fd=folder)
    try:
        return act(inner)
    finally:
        os.close(inner)
