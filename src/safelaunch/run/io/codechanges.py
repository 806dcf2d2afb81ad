"""Which files of the training's own code are newer than an attempt; read in a disposable child, on a shared folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

MOST_BESIDE = 500   # Python files beside one that a command names: modules that it may import


def changed_since(cwd: str, names: Iterable[str], since_t: float) -> list[str]:
    """Those of the names, and Python files beside them, that were written later; what cannot be read is left out."""
    paths = [os.path.join(cwd, os.path.expanduser(name)) for name in names]   # noqa: PTH111, PTH118 - plain texts
    folders = dict.fromkeys(os.path.dirname(path) for path in paths if path.endswith(".py"))   # noqa: PTH120
    found = dict.fromkeys([*paths, *(path for folder in folders for path in _beside(folder))])
    return [os.path.relpath(path, cwd) for path in found if _written_t(path) > since_t]


def _beside(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(MOST_BESIDE), strict=False):
                if entry.name.endswith(".py"):
                    yield entry.path
    except OSError:
        return


def _written_t(path: str) -> float:
    try:
        status = os.stat(path)   # noqa: PTH116 - a text
    except OSError:
        return 0.0
    return status.st_mtime if stat.S_ISREG(status.st_mode) else 0.0
