"""Whether a file, or a run, is this user's own: only then scripts are sent, environments used and claims believed.

A run folder can lie where other people may write. One of them can make it before its owner does, or put another in its
place; what it holds would then run in the owner's name.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from safelaunch.base.io import openfolder
from safelaunch.base.io.owners import OTHERS_WRITE, why_not_own
from safelaunch.base.io.sharedfile import OddFile
from safelaunch.errors import RunFolderError
from safelaunch.run.io.runfolder import OWN_FOLDER

RUN_FOLDERS, RUN_FILES = ("journal", "claims"), ("run.json", "job.sbatch", "submit.env")


def why_not_own_run(run_dir: Path) -> str | None:
    """The same of a run: its folder, and everything in it that is executed or believed."""
    reason = why_not_own(run_dir, is_folder=True)
    for name in (*RUN_FOLDERS, *RUN_FILES):
        try:
            reason = reason or why_not_own(run_dir / name, is_folder=name in RUN_FOLDERS)
        except FileNotFoundError:   # only its owner can have deleted it: nobody else may write the folder
            continue
    return reason


def others_may_write(run_dir: Path) -> bool:
    """Whether somebody ran `chmod -R g+w`: the folder's own mode shows it. Raises OSError."""
    return bool(run_dir.stat().st_mode & OTHERS_WRITE)


def close_run(run_dir: Path) -> bool:
    """Take back what a `chmod -R g+w` gave others on one's own run; True where there was something to take back."""
    try:
        with openfolder.named(run_dir) as run:
            closed = [name for name in (".", *RUN_FOLDERS, *RUN_FILES) if _close(run, name)]
            return closed != []
    except (FileNotFoundError, OddFile):   # why_not_own_run says why
        return False


def _close(run: int, name: str) -> bool:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=run)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):   # none, a link, a socket
            return False
        raise
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not status.st_mode & OTHERS_WRITE:
            return False
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & ~OTHERS_WRITE)
        return True
    finally:
        os.close(descriptor)


def require(run_dir: Path) -> None:
    """Raise RunFolderError where the run is not this user's own."""
    if (reason := why_not_own_run(run_dir)) is not None:
        raise RunFolderError(f"the run in {run_dir} is not yours alone, so nothing in it is executed: {reason}",
                             hint=OWN_FOLDER)
