"""The modes of what is made in a run folder: for its owner alone, and for kill_switch.group to read where there is one.

A folder that is shared with a group passes it on to all that is made in it (setgid, inode(7)). So the folder's mode,
and no umask, sets the mode of what is new there, for every process of the run. The log pump (node/pump.py) and the
batch script cannot import this, and check the same bit.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

FILE, PROGRAM, FOLDER = 0o600, 0o700, 0o700
GROUP_FILE, GROUP_FOLDER = 0o640, 0o2750
GROUP_CONTROL = 0o3770   # members make files there; sticky: none deletes another's


def is_shared(folder: Path | int) -> bool:
    """Whether a folder, or the one of a descriptor, passes on a group that may read it. Raises OSError."""
    mode = os.stat(folder).st_mode   # noqa: PTH116 - a descriptor has no Path
    return bool(mode & stat.S_ISGID and mode & stat.S_IRGRP)


def make_folder(folder: Path) -> None:
    """Make a folder with the mode that its parent calls for; raises OSError."""
    folder.mkdir(FOLDER)
    if is_shared(folder.parent):
        set_mode(folder, GROUP_FOLDER)


def set_mode(path: Path | str, mode: int, group: int = -1, *, folder: int | None = None) -> None:
    """Give a file or folder of this very name a mode, and a group; `folder` is the dir_fd of its folder. Raises
    OSError, also for a link: whoever may write beside it could aim a chmod by path at any file of ours.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    try:
        if group != -1:
            os.fchown(descriptor, -1, group)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def open_to_group(descriptor: int, folder: Path | int) -> None:
    """Let the group of `folder`, if it has one, read a file that was just made there with FILE; raises OSError."""
    if is_shared(folder):
        os.fchmod(descriptor, GROUP_FILE)
