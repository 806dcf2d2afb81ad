"""The outbox: writes for the shared folder, in order, in one file on a node-local disk until they are delivered.

One process adds frames, its courier delivers them and marks how far it got. Both may die of kill -9 at any byte. What
they wrote stays in the page cache, a torn frame fails its checksum, and the next courier goes on from the mark. It is
not synced: a node that loses power loses its local disk for the run as well.

    0     magic, done (u64), begun (u64), begun_at (u64), length of the root's path (u16), root
    4096  frames: magic, kind, seq, length of name, length of data, crc32 of it all | name | data
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

APPEND, PUT = b"A", b"P"

_MAGIC = b"SLOUTBX1"
_MARKS = struct.Struct("<QQQ")  # done, begun, begun_at
_ROOT = struct.Struct("<H")
_FRAME = struct.Struct("<4scQHI")
_CRC = struct.Struct("<I")
_FRAME_MAGIC = b"SLFR"
_FIRST = 4096
# Reserved at the start: a local disk that fills up later then does no harm while the shared folder works.
RESERVED_BYTES = 1 << 20
BATCH_BYTES = 4 << 20
FILE_MODE = 0o600


class QueuedWrite(NamedTuple):
    """One write: its place in the order, what to do, the name below the root, and the bytes."""

    seq: int
    kind: bytes
    name: str
    data: bytes


class Outbox:
    """One outbox file, open; made by `create` or `adopt_all`."""

    def __init__(self, path: Path, descriptor: int, next_seq: int) -> None:
        self.path = path
        self.next_seq = next_seq
        self._descriptor = descriptor
        self._write_at = self._read_at = _FIRST

    @classmethod
    def create(cls, folder: Path, root: Path) -> Outbox:
        """A new outbox for `root`, locked for as long as this process or its courier lives."""
        path = folder / f"outbox-{time.time_ns():020d}-{os.getpid()}"
        draft = path.with_name(f".{path.name}")
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
        name = os.fsencode(root)
        os.pwrite(descriptor, _MAGIC + _MARKS.pack(0, 0, 0) + _ROOT.pack(len(name)) + name, 0)
        draft.replace(path)  # others see it only with its lock held
        return cls(path, descriptor, 1)

    @classmethod
    def adopt_all(cls, folder: Path, root: Path) -> Iterator[Outbox]:
        """The outboxes for `root` whose process and courier are both dead, oldest first, each locked while it is out.

        A courier that hangs in a frozen write still holds its lock, and delivers after the thaw.
        """
        for path in sorted(folder.glob("outbox-*")):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            if path.exists() and _root_of(descriptor) == os.fsencode(root):
                outbox = cls(path, descriptor, 0)
                outbox.seek_undelivered()
                yield outbox
            os.close(descriptor)

    def add(self, kind: bytes, name: str, data: bytes) -> int:
        """The place of a new frame in the order. Raises OSError where the local disk is full: nothing is added then."""
        seq, encoded = self.next_seq, os.fsencode(name)
        head = _FRAME.pack(_FRAME_MAGIC, kind, seq, len(encoded), len(data))
        crc = zlib.crc32(data, zlib.crc32(encoded, zlib.crc32(head)))
        view = memoryview(head + _CRC.pack(crc) + encoded + data)
        at = self._write_at
        while view:
            written = os.pwrite(self._descriptor, view, at)
            view, at = view[written:], at + written
        self._write_at, self.next_seq = at, seq + 1
        return seq

    def rewind(self) -> None:
        """Write from the start again when everything is delivered, so that the file stays small."""
        if self._write_at > RESERVED_BYTES // 2:
            self._write_at = _FIRST

    def seek_undelivered(self) -> None:
        """Place a new reader after what is delivered."""
        self._read_at, done = _FIRST, self.done
        for frame, end in self._frames(_FIRST):
            if frame.seq <= done:
                self._read_at = end

    def undelivered(self) -> list[QueuedWrite]:
        """The next frames, in order, about `BATCH_BYTES` of them; each call continues the last one."""
        frames: list[QueuedWrite] = []
        size_bytes, expected = 0, self.done + 1
        for start in (self._read_at, _FIRST):  # the writer may have gone back to the start
            found = self._frame_at(start)
            if found is not None and found[0].seq == expected:
                break
        else:
            return frames
        for frame, end in self._frames(start):
            frames.append(frame)
            self._read_at = end
            size_bytes += len(frame.data)
            if size_bytes >= BATCH_BYTES:
                break
        return frames

    def _frames(self, at: int) -> Iterator[tuple[QueuedWrite, int]]:
        """The consecutive frames from `at` on, each with the place where it ends."""
        found = self._frame_at(at)
        while found is not None:
            yield found
            following = self._frame_at(found[1])
            found = following if following is not None and following[0].seq == found[0].seq + 1 else None

    def _frame_at(self, at: int) -> tuple[QueuedWrite, int] | None:
        head = os.pread(self._descriptor, _FRAME.size + _CRC.size, at)
        if len(head) < _FRAME.size + _CRC.size or not head.startswith(_FRAME_MAGIC):
            return None
        _, kind, seq, name_bytes, data_bytes = _FRAME.unpack_from(head)
        body = os.pread(self._descriptor, name_bytes + data_bytes, at + len(head))
        if zlib.crc32(body, zlib.crc32(head[:_FRAME.size])) != _CRC.unpack_from(head, _FRAME.size)[0]:
            return None
        frame = QueuedWrite(seq, kind, os.fsdecode(body[:name_bytes]), body[name_bytes:])
        return frame, at + len(head) + len(body)

    @property
    def done(self) -> int:
        """Every frame up to this one is delivered."""
        return self._marks()[0]

    def mark_done(self, seq: int) -> None:
        """Remember that every frame up to `seq` is delivered."""
        os.pwrite(self._descriptor, struct.pack("<Q", seq), len(_MAGIC))

    def begun_at(self, seq: int) -> int | None:
        """How long the file was before frame `seq` was appended to it; None where that has not begun."""
        _, begun, begun_at = self._marks()
        return begun_at if begun == seq else None

    def mark_begun(self, seq: int, size_bytes: int) -> None:
        """Remember how long the file is before frame `seq` is appended to it."""
        os.pwrite(self._descriptor, struct.pack("<QQ", seq, size_bytes), len(_MAGIC) + 8)

    def _marks(self) -> tuple[int, int, int]:
        done, begun, begun_at = _MARKS.unpack(os.pread(self._descriptor, _MARKS.size, len(_MAGIC)))
        return done, begun, begun_at

    def fileno(self) -> int:
        """The descriptor, which also holds the lock."""
        return self._descriptor

    def remove(self) -> None:
        """Delete the file: everything in it is delivered."""
        self.path.unlink(missing_ok=True)


def _root_of(descriptor: int) -> bytes | None:
    head = os.pread(descriptor, _FIRST, 0)
    at = len(_MAGIC) + _MARKS.size
    if len(head) < at + _ROOT.size or not head.startswith(_MAGIC):
        return None
    (length,) = _ROOT.unpack_from(head, at)
    return head[at + _ROOT.size:at + _ROOT.size + length]
