"""Whether a path is a run's folder: a module of its own, because runfolder is slow to import."""

from __future__ import annotations

import stat
from pathlib import Path


def is_run_folder(path: Path) -> bool:
    """Whether a folder holds a run; one that is closed to this user may: `runfolder.load` names its owner.

    Raises PermissionError where a folder above it is closed. Not `Path.is_file`: from Python 3.14 on that is false also
    where one may not look.
    """
    try:
        return stat.S_ISREG((path / "run.json").stat().st_mode)
    except PermissionError:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False
