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


def is_shared(folder: Path) -> bool:
    """Whether a folder passes on a group that may read it. Raises OSError."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_ISGID and mode & stat.S_IRGRP)


def make_folder(folder: Path) -> None:
    """Make a folder with the mode that its parent calls for; raises OSError."""
    folder.mkdir(FOLDER)
    if is_shared(folder.parent):
        folder.chmod(GROUP_FOLDER)


def open_to_group(descriptor: int, folder: Path) -> None:
    """Let the group of `folder`, if it has one, read a file that was just made there with FILE; raises OSError."""
    if is_shared(folder):
        os.fchmod(descriptor, GROUP_FILE)
