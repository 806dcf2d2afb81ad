"""The checkpoint folder on a real filesystem: read, never changed.

Standard library only, and cheap to import: the leader runs it in a disposable child, because a shared filesystem may
freeze: `python -I -m safelaunch.adapters.checkpoints DIR FORMAT [PATTERN]` prints what it found as JSON.
"""

# os.path, because the reader may be the leader: importing pathlib costs it memory.
# ruff: noqa: PTH100, PTH116, PTH120, PTH208
from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from safelaunch.core.checkpoints.latest import latest_complete
from safelaunch.core.checkpoints.model import Found


class RealFolder:
    """A directory tree as core's `Folder` sees it; links are followed, but never back into a folder above them."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)

    def names(self, path: str) -> Sequence[str]:
        """The names in a directory; a missing one has none, an unreadable one raises OSError."""
        try:
            return os.listdir(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def is_dir(self, path: str) -> bool:
        """Whether a directory is there that is no link to one of its own parents."""
        there = self._at(path)
        try:
            if not stat.S_ISDIR(os.stat(there).st_mode):
                return False
            real = os.path.realpath(there)
        except OSError:
            return False
        parent = os.path.realpath(os.path.dirname(there))
        return real == there or not (parent + "/").startswith(real + "/")

    def size(self, path: str) -> int | None:
        """Bytes in a regular file, None for anything else; raises OSError when nobody may know."""
        try:
            found = os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def read(self, path: str, start: int, length: int) -> bytes:
        """At most `length` bytes; opened without waiting, so that a pipe of this name cannot hold the reader."""
        descriptor = os.open(self._at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(0, "not a regular file", path)
            at = start if start >= 0 else max(found.st_size + start, 0)
            return os.pread(descriptor, max(0, min(length, found.st_size - at)), at)
        finally:
            os.close(descriptor)

    def mtime_s(self, path: str) -> float | None:
        """When the content last changed, epoch seconds."""
        try:
            return os.stat(self._at(path)).st_mtime
        except OSError:
            return None

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root


def find(dir: str, format: str, pattern: str | None = None) -> Found:
    """The newest whole checkpoint in `dir` with its absolute path, older ones, and what was skipped and why.

    A missing folder holds nothing. An unreadable one raises OSError: unknown is not "none" (law 4).
    """
    folder = RealFolder(dir)
    found = latest_complete(folder, format, pattern)
    return Found(
        best=found.best and replace(found.best, path=folder._at(found.best.path)),
        older=tuple(replace(one, path=folder._at(one.path)) for one in found.older),
        skipped=tuple(replace(one, path=folder._at(one.path)) for one in found.skipped),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """0 with JSON on stdout; 2 for a wrong ask or a folder that cannot be read."""
    words = sys.argv[1:] if argv is None else list(argv)
    if len(words) not in (2, 3):
        print("usage: python -I -m safelaunch.adapters.checkpoints DIR FORMAT [PATTERN]", file=sys.stderr)
        return 2
    try:
        found = find(words[0], words[1], words[2] if len(words) == 3 else None)
    except (OSError, ValueError) as error:
        print(f"checkpoints: {words[0]}: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"v": 1, **asdict(found)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
