"""The files of control/, by which people control a run, also another user's; and the claims of verbs.

Each function takes RUN/control/NAME, opens RUN and control so that no link of somebody else is followed, and then acts
by the folder's descriptor only (base.io.openfolder).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safelaunch.base.io import modes, openfolder, owners
from safelaunch.base.io.probe import run_in_child
from safelaunch.errors import RunFolderError
from safelaunch.run.io.loginactor import LoginActor
from safelaunch.run.io.runfolder import Run
from safelaunch.verbs.common import runs


@dataclass(frozen=True)
class Touched:
    """A control file: by whom, since when (epoch s), and whether this touch made it."""

    who: str
    t: float
    is_new: bool


def touch(path: Path, note: str = "", *, is_elsewhere: bool = False) -> Touched:
    """The file's request, whoever made it first; a new one contains `note`, for `cat`. `is_elsewhere`: it is an own
    run's kill_switch.file, in a folder of any name. Raises RunFolderError.
    """
    return Touched(*_in_child(lambda folder: _touch(folder, path.name, note), path, is_elsewhere))


def renew(path: Path, t: float) -> Touched:
    """The request made anew, with the time `t` (epoch s) and as mine; raises RunFolderError when it cannot be made."""
    return Touched(*_in_child(lambda folder: _renew(folder, path.name, t), path))


def look(path: Path) -> Touched | None:
    """The request that is there; None = there is none. Raises RunFolderError."""
    found = _in_child(lambda folder: _look(folder, path.name), path)
    return None if found is None else Touched(*found)


def remove(path: Path) -> Touched | None:
    """The request that was there and is taken back now; None = there was none. Raises RunFolderError."""
    found = _in_child(lambda folder: _remove(folder, path.name), path)
    return None if found is None else Touched(*found)


def login_actor(run: Run) -> LoginActor:
    """Claims and journal of generation 0, whose line numbers continue those in the folder."""
    return LoginActor(run.dir, max((event.seq for event in run.journal().events if event.gen == 0), default=0))


def is_mine(run: Run) -> bool:
    """Whether I own the run: only its owner can write its journal and change its jobs."""
    return owners.name_of(os.getuid()) == runs.owner_of(run.dir)


def _in_child(act: Callable[[int], Any], path: Path, is_elsewhere: bool = False) -> Any:
    """What `act` makes of the descriptor of the path's folder."""
    def do() -> Any:
        folder = path.parent
        with openfolder.named(folder) if is_elsewhere else openfolder.inside(folder.parent, folder.name) as opened:
            return act(opened)

    answer = run_in_child(do, runs.FOLDER_DEADLINE_S)
    if answer.late:
        raise RunFolderError(f"{path.parent} does not answer for {runs.FOLDER_DEADLINE_S:.0f} s: no request was made",
                             hint="its filesystem is frozen; try again, or end the job by scancel")
    if answer.errno in (errno.EACCES, errno.EPERM):
        raise RunFolderError(f"you may not touch {path}: {_who_may(path)}", hint=_how_to_be_allowed(path))
    if not answer.is_ok:
        raise RunFolderError(f"{path} cannot be touched: {answer.error}")
    return answer.value


def _touch(folder: int, name: str, note: str) -> tuple[str, float, bool]:
    """(who, when, is_new) of the file; runs in a child. Never opens what another user may have put there."""
    is_new = True
    try:
        os.close(_make(folder, name, note))
    except FileExistsError:
        is_new = False
    return _facts(folder, name, is_new)


def _renew(folder: int, name: str, t: float) -> tuple[str, float, bool]:
    """A new file under the old one's name: another member's may not let us change its time."""
    is_new = _look(folder, name) is None
    draft = f".{name}.{os.uname().nodename}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)   # of a dead process with this pid
    made = _make(folder, draft, "")
    try:
        os.utime(made, (t, t))
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(draft, dir_fd=folder)
        raise
    finally:
        os.close(made)
    return _facts(folder, name, is_new)


def _look(folder: int, name: str) -> tuple[str, float, bool] | None:
    with contextlib.suppress(FileNotFoundError):
        return _facts(folder, name, False)
    return None


def _facts(folder: int, name: str, is_new: bool) -> tuple[str, float, bool]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return owners.name_of(status.st_uid), status.st_mtime, is_new


def _remove(folder: int, name: str) -> tuple[str, float, bool] | None:
    found = _look(folder, name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    return found


def _make(folder: int, name: str, note: str) -> int:
    """A descriptor of the new file."""
    mode = 0o660 if modes.is_shared(folder) else modes.FILE   # every member of the group may repeat it
    made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    if note:
        os.write(made, f"{note}\n".encode(errors="replace"))
    return made


def _who_may(path: Path) -> str:
    """For people: the users who may use the folder, as far as its mode shows."""
    try:
        status = path.parent.stat()
    except OSError:
        return f"only {_owner_above(path.parent)}, and the group of kill_switch.group where one is set, may"
    owner = owners.name_of(status.st_uid)
    if status.st_mode & stat.S_ISVTX and os.path.lexists(path):
        maker = owners.name_of(path.lstat().st_uid)
        return f"only {owner if maker == owner else f'{maker}, who made it, and {owner}'} may change it"
    if status.st_mode & stat.S_IWGRP:
        return f"only {owner} and the members of the group {owners.group_of(status.st_gid)} may"
    return f"only {owner} may"


def _owner_above(folder: Path) -> str:
    for parent in folder.parents:
        try:
            return owners.name_of(parent.stat().st_uid)
        except OSError:
            continue
    return "its owner"


def _how_to_be_allowed(path: Path) -> str:
    return (f"ask {_owner_above(path.parent)} to do it, or to submit with kill_switch.group set to a group of yours; "
            f"`id` shows your groups")
