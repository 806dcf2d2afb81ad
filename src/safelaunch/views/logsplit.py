"""`logs --split FOLDER`: the log of each attempt as one file for each rank."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from safelaunch.adapters import modes
from safelaunch.core.launchers import LAUNCHERS
from safelaunch.core.logview.rankfile import OTHER, rank_file
from safelaunch.core.plan import Plan
from safelaunch.errors import UsageError
from safelaunch.views.attemptlogs import AttemptLog, LogPart
from safelaunch.views.logparts import split_lines

MOST_OPEN = 200       # files at a time; a process may have 1024
MOST_FILES = 20_000   # of an attempt: a log full of odd prefixes fills no folder with files


def split_logs(plan: Plan, parts: Iterable[LogPart], logs: list[AttemptLog], folder: Path) -> dict[Path, int]:
    """Write each attempt's part of `parts` below `folder/attempt-N`; the files of each such folder, counted.

    Raises UsageError where one of these folders is there already, or the files cannot be written.
    """
    per_node = None
    if LAUNCHERS[plan.launch.by].starts_ranks:
        per_node = plan.launch.nproc_per_node or plan.gpus_per_node or 1
    try:
        homes = {log.number: _made(folder, log.number) for log in logs}
        names: dict[int, set[str]] = {number: set() for number in homes}
        with _OpenFiles() as files:
            for log, line in split_lines(parts):
                name = rank_file(line, log.nodes, per_node)
                seen = names[log.number]
                if name not in seen and len(seen) >= MOST_FILES:
                    name = OTHER
                seen.add(name)
                files.append(homes[log.number] / name, line + b"\n")
    except OSError as error:
        raise UsageError(f"--split {folder}: {error.strerror}: {error.filename}") from error
    return {home: len(names[number]) for number, home in homes.items()}


def _made(folder: Path, number: int) -> Path:
    folder.mkdir(modes.FOLDER, parents=True, exist_ok=True)
    home = folder / f"attempt-{number}"
    try:
        home.mkdir(modes.FOLDER)
    except FileExistsError as error:
        raise UsageError(f"--split {folder}: {home} is there already; name another folder") from error
    return home


class _OpenFiles:
    """Files that lines are added to; those that were not used for longest are closed meanwhile."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, BinaryIO] = OrderedDict()

    def __enter__(self) -> _OpenFiles:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for file in self._open.values():
                stack.callback(file.close)

    def append(self, path: Path, data: bytes) -> None:
        """Add to a file, which is made where there is none."""
        file = self._open.get(path)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            file = self._open[path] = _append_to(path)
        self._open.move_to_end(path)
        file.write(data)


def _append_to(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, modes.FILE), "ab")
