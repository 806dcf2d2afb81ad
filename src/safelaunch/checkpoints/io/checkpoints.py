"""The checkpoint folder on a real filesystem: read, never changed.

The leader runs it in a disposable child, because a shared filesystem may freeze. So it needs the standard library only
and imports little.
"""

# os.path, because the reader may be the leader: importing pathlib costs it memory.
# ruff: noqa: PTH100, PTH112, PTH115, PTH116, PTH118, PTH120
from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

from safelaunch.checkpoints import latest
from safelaunch.checkpoints.latest import MOST_WHOLE
from safelaunch.checkpoints.model import FoundCheckpoints, JudgedCheckpoint
from safelaunch.checkpoints.pickled import Allowance
from safelaunch.extensions.plugins import FORMATS, NoPlugin

if TYPE_CHECKING:
    from safelaunch.extensions.pluginvalues import CheckpointFormat

# One read of this much is enough for a small file: most marks, headers and directories of archives fit in it.
_SMALL_BYTES = 1 << 16
MOST_ENTRIES = 256     # of a checkpoint's folder, whose times show when it was finished


class RealFolder:
    """A directory tree as core's `Folder` sees it; links are followed, but never back into a folder above them.

    It holds for one search: each folder is listed once, and each file touched twice at most (size, open). On a parallel
    filesystem each touch is a message, and a checkpoint may have 10,000 files.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.allowance = Allowance()
        self._listed: dict[str, dict[str, bool | None]] = {}
        self._open: _OpenFile | None = None

    def names(self, path: str) -> Sequence[str]:
        """The names in a directory; a missing one has none, an unreadable one raises OSError."""
        return tuple(self._kinds(path))

    def is_dir(self, path: str) -> bool:
        """Whether a directory is there that is no link to one of its own parents."""
        parent, _, name = path.rpartition("/")
        known = self._listed[parent].get(name, False) if path and parent in self._listed else None
        return _is_other_dir(self._at(path)) if known is None else known

    def size(self, path: str) -> int | None:
        """Bytes in a regular file, None for anything else; raises OSError when nobody may know."""
        try:
            found = os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def read(self, path: str, start: int, length: int) -> bytes:
        """At most `length` bytes; the file stays open until another one is read."""
        if self._open is None or self._open.path != path:
            self.close()
            self._open = _OpenFile(path, self._at(path))
        return self._open.read(start, length)

    def close(self) -> None:
        """Close the file that was read last."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _kinds(self, path: str) -> dict[str, bool | None]:
        """Name → whether it is a directory, as the listing says; None for a link, which has to be followed."""
        if path not in self._listed:
            try:
                with os.scandir(self._at(path)) as found:
                    kinds = {one.name: None if one.is_symlink() else one.is_dir(follow_symlinks=False) for one in found}
            except (FileNotFoundError, NotADirectoryError):
                kinds = {}
            self._listed[path] = kinds
        return self._listed[path]

    def link(self, path: str) -> str | None:
        """Where a link points, relative to the root if it is below it; None for anything else."""
        parent, _, name = path.rpartition("/")
        if self._kinds(parent).get(name, False) is not None:   # the listing tells what is none
            return None
        try:
            to = os.path.normpath(os.path.join(os.path.dirname(self._at(path)), os.readlink(self._at(path))))
        except OSError:
            return None
        return to[len(self.root) + 1 :] if to.startswith(self.root + "/") else to

    def mtime_s(self, path: str) -> float | None:
        """When the content last changed, epoch seconds."""
        try:
            return os.stat(self._at(path)).st_mtime
        except OSError:
            return None

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root


class _OpenFile:
    """A file that is being read; a small one is read once, as a whole."""

    def __init__(self, path: str, at: str) -> None:
        self.path = path
        # O_NONBLOCK: a pipe of this name cannot block the reader.
        self._descriptor = os.open(at, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            found = os.fstat(self._descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(0, "not a regular file", path)
            self._size = found.st_size
            self._whole = os.pread(self._descriptor, self._size, 0) if self._size <= _SMALL_BYTES else None
        except BaseException:
            self.close()
            raise

    def read(self, start: int, length: int) -> bytes:
        at = start if start >= 0 else max(self._size + start, 0)
        if self._whole is not None:
            return self._whole[at : at + length]
        return os.pread(self._descriptor, max(0, min(length, self._size - at)), at)

    def close(self) -> None:
        os.close(self._descriptor)


def _is_other_dir(there: str) -> bool:
    """Whether a directory is there that is no link to one of its own parents."""
    try:
        if not stat.S_ISDIR(os.stat(there).st_mode):
            return False
        real = os.path.realpath(there)
    except OSError:
        return False
    parent = os.path.realpath(os.path.dirname(there))
    return real == there or not (parent + "/").startswith(real + "/")


def survey(dir: str, format: str, pattern: str | None = None,
           most_whole: int = MOST_WHOLE) -> tuple[JudgedCheckpoint, ...]:
    """Every candidate in `dir`, the newest first, with its absolute path, and why it is not complete.

    A missing folder holds nothing. An unreadable one raises OSError: unknown is not "none".
    """
    plugins = {} if format in latest.NAMES else {format: _plugin(format)}
    with contextlib.closing(RealFolder(dir)) as folder:
        judged = latest.survey(folder, format, pattern, most_whole, plugins)
        return tuple(one._replace(path=folder._at(one.path)) for one in judged)


def _plugin(name: str) -> CheckpointFormat:
    """The format of a package; raises ValueError."""
    from safelaunch.extensions.io import plugins
    try:
        found: CheckpointFormat = plugins.load_code(FORMATS, name)
    except NoPlugin as error:
        raise ValueError(f'checkpoint format "{name}": {error}; known here: {", ".join(latest.NAMES)}') from error
    return found


def find(dir: str, format: str, pattern: str | None = None, most_whole: int = MOST_WHOLE) -> FoundCheckpoints:
    """The newest whole checkpoint in `dir` with its absolute path, older ones, what was skipped and why; see survey."""
    return latest.choose(survey(dir, format, pattern, most_whole))


def finished_t(path: str) -> float:
    """When the last file of a checkpoint was written, epoch s by the file server's clock."""
    times = [os.stat(path).st_mtime]
    if os.path.isdir(path):
        with os.scandir(path) as entries:
            times += [entry.stat().st_mtime for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False)]
    return max(times)
