"""Disks: read and write with the rate, free space and inodes, mounts that answer, the control folder.

Standard library, Python 3.9.
"""

from __future__ import annotations

import os
import struct
import time

from safelaunch.node.checks.answer import FULL, failed, ok, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.node.checks.answer import CheckRequest

BLOCK = 1 << 20
LIGHT_BYTES, FULL_BYTES = 32 << 20, 1 << 30
SHARE_OF_FREE = 10       # a test of a tenth of what is free fills no disk
LEAST_FREE_GB = 1.0      # room for logs; how large a run's checkpoints are nobody has said here
LEAST_INODES = 10_000    # a checkpoint of 1,000 ranks has some thousand files
GB = 1e9


def check_read_write(request: CheckRequest, path: str) -> dict[str, Any]:
    """Write a fresh file, bring it to the disk, read it back and compare; GB/s of both."""
    room = os.statvfs(path)
    free, most = room.f_bavail * room.f_frsize, FULL_BYTES if request.level == FULL else LIGHT_BYTES
    blocks = (min(most, free // SHARE_OF_FREE) if room.f_blocks else LIGHT_BYTES) // BLOCK
    if not blocks:
        return failed("too little space for a test: %.3f GB are free" % (free / GB), free_gb=free / GB)
    fill = os.urandom(BLOCK - 8)   # random: a filesystem that compresses would write next to nothing
    fd = _open_fresh(path)
    try:
        write_s = _write(fd, fill, blocks)
        read_s, wrong = _read(fd, fill, blocks)
    finally:
        os.close(fd)
    gb = blocks * BLOCK / GB
    rates = {"read_gb_s": round(gb / read_s, 3), "write_gb_s": round(gb / write_s, 3), "gb": round(gb, 3)}
    if wrong:
        return failed("%d of %d MiB that were read back are not what was written" % (wrong, blocks), **rates)
    return ok("read %s, write %s" % (rate(gb / read_s), rate(gb / write_s)), **rates)


def rate(gb_s: float) -> str:
    """5.9 GB/s, 663 MB/s."""
    return "%.1f GB/s" % gb_s if gb_s >= 1 else "%.0f MB/s" % (gb_s * 1000)


def check_space(request: CheckRequest, path: str) -> dict[str, Any]:
    """Free space and free inodes, as an ordinary user may have them."""
    room = os.statvfs(path)
    free_gb, inodes = room.f_bavail * room.f_frsize / GB, room.f_favail if room.f_files else None
    facts = {"free_gb": round(free_gb, 3), "free_inodes": inodes}
    if not room.f_blocks:   # a tmpfs without a limit, and many a FUSE
        return unknown("this filesystem does not tell its space")
    if free_gb < LEAST_FREE_GB:
        return failed("%.3f GB are free, %.0f are needed" % (free_gb, LEAST_FREE_GB), **facts)
    if inodes is not None and inodes < LEAST_INODES:
        return failed("%d inodes are free, %d are needed" % (inodes, LEAST_INODES), **facts)
    # btrfs, and some shared filesystems, count no inodes: statvfs says 0 of 0.
    counted = "its inodes are not counted" if inodes is None else "%d inodes" % inodes
    return ok("%.1f GB free, %s" % (free_gb, counted), **facts)


def check_mount(request: CheckRequest, point: str) -> dict[str, Any]:
    """Whether a mounted filesystem answers at all."""
    try:
        os.stat(point)
        os.statvfs(point)
    except PermissionError:   # a FUSE mount shows itself to its owner only: fuse(8), allow_other
        return ok("answers: only its owner may look")
    return ok("answers")


def check_control(request: CheckRequest, folder: str) -> dict[str, Any]:
    """Whether the control folder can be listed, and a file be made in it."""
    os.listdir(folder)
    os.close(_open_fresh(folder))
    return ok("can be read and written")


def _open_fresh(folder: str) -> int:
    """A new file that has no name any more: whatever becomes of this process, it leaves none behind."""
    name = ".safelaunch-check-%s-%d-%x" % (os.uname().nodename, os.getpid(), time.time_ns())
    path = os.path.join(folder, name)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return fd


def _write(fd: int, fill: bytes, blocks: int) -> float:
    """Seconds to write that many numbered blocks and to bring them to the disk."""
    start_s = time.monotonic()
    for number in range(blocks):
        view = memoryview(struct.pack("<Q", number) + fill)
        while view:
            view = view[os.write(fd, view):]
    os.fsync(fd)
    return max(time.monotonic() - start_s, 1e-9)


def _read(fd: int, fill: bytes, blocks: int) -> tuple[float, int]:
    """(seconds to read them back, how many are wrong); the kernel is asked to forget them first."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)   # a filesystem with a cache of its own need not
    os.lseek(fd, 0, os.SEEK_SET)
    wrong, start_s = 0, time.monotonic()
    for number in range(blocks):
        wrong += _read_block(fd) != struct.pack("<Q", number) + fill
    return max(time.monotonic() - start_s, 1e-9), wrong


def _read_block(fd: int) -> bytes:
    parts, left = [], BLOCK
    while left:
        part = os.read(fd, left)
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
