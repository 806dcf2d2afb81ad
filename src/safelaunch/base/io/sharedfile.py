"""Opening a file where other people can write: a link, a pipe or a disk full of zeros may have its name.

A run folder can lie where a group, or everybody, may write, and a verb reads runs of other people. So every file of one
is opened here: no link is followed, no pipe blocks, and no file takes all memory.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

MOST_BYTES = 16 << 20   # of run.json: its config with a script of 4 MB, rule packs, 1 MiB of the working tree's diff
MOST_CONTAINERS = 1_000_000   # objects and lists of a JSON text: two bytes of it take 64 in memory
BLOCK_BYTES = 1 << 20
HEARTBEAT_BYTES = CLAIM_BYTES = 1 << 16


class OddFile(OSError):
    """What has the name is no file of a run: a link, a pipe, a folder, or too large."""


def is_file(path: Path) -> bool:
    """Whether `open_file` would open it; False also where nobody can say."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def listing(folder: Path, pattern: str) -> tuple[Path, ...]:
    """What matches below a folder, sorted; what refuses to be listed holds nothing (`why_closed` says why)."""
    try:
        return tuple(sorted(folder.glob(pattern)))
    except OSError:   # closed, or a name that is too long
        return ()


def why_closed(folder: Path) -> str | None:
    """Why a folder that is there cannot be listed, as "Permission denied"; None = it can, or there is none."""
    try:
        next(folder.iterdir(), None)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return error.strerror or str(error)
    return None


def open_file(path: str | os.PathLike[str]) -> int:
    """A descriptor to read the regular file of this very name; raises OSError, OddFile where it is none."""
    return _open(path, os.O_NOFOLLOW)


def open_log(path: str | os.PathLike[str]) -> int:
    """The same for a log, any file that a person named: links are followed. `is_file` chose those of a run folder."""
    return _open(path, 0)


def _open(path: str | os.PathLike[str], flags: int) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):   # a link; a socket
            raise OddFile(error.errno, "is no regular file", os.fspath(path)) from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OddFile(errno.EINVAL, "is no regular file", os.fspath(path))


def stream(path: Path) -> BinaryIO:
    """A regular file of this very name, open to be read. Raises OSError."""
    return os.fdopen(open_file(path), "rb")


def holds(path: Path, data: bytes) -> bool:
    """Whether a file's whole content is `data`; False also for what is no file. Raises OSError."""
    try:
        return read_start(path, len(data) + 1) == data
    except OddFile:
        return False


def read(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """All of a file; raises OSError, OddFile also for one that is larger than `most_bytes`."""
    content = read_start(path, most_bytes + 1)
    if len(content) > most_bytes:
        raise OddFile(errno.EFBIG, f"is larger than {most_bytes} bytes", str(path))
    return content


def read_end(path: Path, most_bytes: int) -> bytes:
    """The last `most_bytes` of a file, or all of it. Raises OSError."""
    descriptor = open_file(path)
    try:
        return os.pread(descriptor, most_bytes, max(0, os.fstat(descriptor).st_size - most_bytes))
    finally:
        os.close(descriptor)


def parse_json(content: bytes) -> Any:
    """The value; raises ValueError, also where it is nested more deeply than Python can follow, or holds too much."""
    if content.count(b"{") + content.count(b"[") > MOST_CONTAINERS:
        raise ValueError(f"more than {MOST_CONTAINERS} objects and lists")
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """The value in a file; raises OSError and ValueError as `read` and `parse_json` do."""
    return parse_json(read(path, most_bytes))


def first_data(fd: int, offset: int) -> int:
    """The first byte from the offset on that is no hole; the file's size where all of it is one."""
    size = os.fstat(fd).st_size
    try:
        return os.lseek(fd, offset, os.SEEK_DATA) if offset < size else offset
    except OSError as error:
        return size if error.errno == errno.ENXIO else offset   # EINVAL: a file system without holes


def read_start(path: Path, most_bytes: int, skips_zeros: bool = False) -> bytes:
    """The first `most_bytes` of a file, or all of it; takes no more memory than that. Raises OSError.
    `skips_zeros`: of a block of zero bytes, which a lost write leaves, only one.
    """
    descriptor = open_file(path)
    try:
        left, parts = most_bytes, []
        most = BLOCK_BYTES if skips_zeros else max(1 << 16, os.fstat(descriptor).st_size + 1)
        while left and (part := os.read(descriptor, min(left, most))):
            parts.append(part if not skips_zeros or part[0] or part != bytes(len(part)) else b"\0")
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
