"""later-jobs.json in a run folder: what `safelaunch change` wants of the run's later jobs. Only its owner's counts."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path

from safelaunch.base.io import durable, sharedfile
from safelaunch.base.io.owners import OTHERS_WRITE
from safelaunch.script import laterjobs

FILE = "later-jobs.json"


def read(run_dir: Path) -> dict[str, str]:
    """The changes; {} where there are none, or the file is not its owner's alone. Raises OSError."""
    path = run_dir / FILE
    try:
        status = path.lstat()
        is_owners = stat.S_ISREG(status.st_mode) and status.st_uid == run_dir.stat().st_uid
        return laterjobs.clean(sharedfile.read_json(path)) if is_owners and not status.st_mode & OTHERS_WRITE else {}
    except (FileNotFoundError, ValueError):
        return {}


def write(run_dir: Path, changes: Mapping[str, str]) -> None:
    """Keep the changes for the supervisors of later submissions. Raises OSError."""
    durable.put(run_dir / FILE, json.dumps({"v": 1, **changes}).encode() + b"\n")
