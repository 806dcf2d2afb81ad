"""Touching a file of control/: how people steer a run, also one that is not their own."""

from __future__ import annotations

import errno
import grp
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from safelaunch.adapters import runfolder
from safelaunch.commands import runs
from safelaunch.errors import RunFolderError
from safelaunch.node.probe import run_in_child


@dataclass(frozen=True)
class Touched:
    """A control file that is there now: by whom, since when (epoch s), and whether this touch made it."""

    who: str
    t: float
    is_new: bool


def touch(path: Path) -> Touched:
    """The request that the file stands for, whoever was first; raises RunFolderError when it cannot be made."""
    answer = run_in_child(lambda: _touch(path), runs.FOLDER_DEADLINE_S)
    if answer.late:
        raise RunFolderError(f"{path.parent} does not answer for {runs.FOLDER_DEADLINE_S:.0f} s: nothing was asked for",
                             hint="its filesystem is frozen; try again, or end the job by scancel")
    if answer.errno in (errno.EACCES, errno.EPERM):
        raise RunFolderError(f"you may not touch {path}: {_who_may(path)}", hint=_how_to_be_allowed(path))
    if not answer.is_ok or answer.value is None:
        raise RunFolderError(f"{path} cannot be touched: {answer.error}")
    who, t, is_new = answer.value
    return Touched(str(who), float(t), bool(is_new))


def _touch(path: Path) -> tuple[str, float, bool]:
    """(who, when, is_new) of the file; runs in a child. Never opens what another user may have put there."""
    is_new = True
    try:
        # 0660: in a setgid folder every member of the group may repeat it.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o660))
    except FileExistsError:
        is_new = False
    status = path.lstat()
    return runfolder.name_of(status.st_uid), status.st_mtime, is_new


def _who_may(path: Path) -> str:
    """For people: the users whom the folder lets in, as far as we can see it."""
    try:
        status = path.parent.stat()
    except OSError:
        return f"only {_owner_above(path.parent)}, and the group of kill_switch.group where one is set, may"
    owner = runfolder.name_of(status.st_uid)
    if status.st_mode & stat.S_IWGRP:
        return f"only {owner} and the members of the group {_group_name(status.st_gid)} may"
    return f"only {owner} may"


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _owner_above(folder: Path) -> str:
    for parent in folder.parents:
        try:
            return runfolder.name_of(parent.stat().st_uid)
        except OSError:
            continue
    return "its owner"


def _how_to_be_allowed(path: Path) -> str:
    return (f"ask {_owner_above(path.parent)} to stop it, or to submit with kill_switch.group set to a group of yours; "
            f"`id` shows your groups")
