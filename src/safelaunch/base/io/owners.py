"""Users and groups by name, and whether a path is this user's alone."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def name_of(uid: int) -> str:
    """A user's name; the number where the node does not know the name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_of(gid: int) -> str:
    """A group's name; the number where the node does not know the name."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def who_else_writes(status: os.stat_result) -> str:
    """Who else can write a file or folder, by its owner and mode; "" = nobody. A user's private group is that user."""
    me = os.geteuid()
    if status.st_uid not in (me, 0):
        return name_of(status.st_uid)
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    group = group_of(status.st_gid)
    return f"the group {group}" if status.st_mode & stat.S_IWGRP and group != name_of(me) else ""


def why_not_own(path: Path, *, is_folder: bool, or_roots: bool = False) -> str | None:
    """Why a path is not this user's alone; None = it is one's own folder or file, and nobody else may write it.

    `or_roots`: one of root's counts, too. Raises OSError where nobody can say: FileNotFoundError, or a closed parent
    folder.
    """
    status = path.lstat()
    if is_folder and stat.S_ISLNK(status.st_mode) and status.st_uid == os.geteuid():
        status = path.stat()   # follows links: one's own may lead elsewhere
    if not (stat.S_ISDIR if is_folder else stat.S_ISREG)(status.st_mode):
        return f"{path} is no {'folder' if is_folder else 'regular file'}"
    if status.st_uid != os.geteuid() and not (or_roots and status.st_uid == 0):
        return f"{path} belongs to {name_of(status.st_uid)}"
    if status.st_mode & OTHERS_WRITE:
        return f"others may write {path}"
    return None
