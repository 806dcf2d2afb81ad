"""`logs --split FOLDER`: the log of each attempt as one file for each rank."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from safelaunch.adapters import modes
from safelaunch.core.plan import Plan
from safelaunch.errors import UsageError
from safelaunch.node.ranklogs import RankFiles
from safelaunch.views.attemptlogs import AttemptLog, LogPart
from safelaunch.views.logparts import split_lines


def split_logs(plan: Plan, parts: Iterable[LogPart], logs: list[AttemptLog], folder: Path) -> dict[Path, int]:
    """Write each attempt's part of `parts` below `folder/attempt-N`; the files of each such folder, counted.

    Raises UsageError where one of these folders is there already, or the files cannot be written.
    """
    try:
        homes = {log.number: _made(folder, log.number) for log in logs}
        files = {log.number: RankFiles(str(homes[log.number]), log.nodes, plan.launch.local_ranks) for log in logs}
        for log, line in split_lines(parts):
            files[log.number].add(line)
        for one in files.values():
            one.end()
    except OSError as error:
        raise UsageError(f"--split {folder}: {error.strerror}: {error.filename}") from error
    return {homes[number]: len(one.names) for number, one in files.items()}


def _made(folder: Path, number: int) -> Path:
    folder.mkdir(modes.FOLDER, parents=True, exist_ok=True)
    home = folder / f"attempt-{number}"
    try:
        home.mkdir(modes.FOLDER)
    except FileExistsError as error:
        raise UsageError(f"--split {folder}: {home} is there already; name another folder") from error
    return home
