"""Pieces of one log file → what the rules find there, with a bounded memory whatever the file holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from safelaunch.base.io import sharedfile
from safelaunch.why import loglines
from safelaunch.why.read.parts import Part
from safelaunch.why.read.prefilter import Shapes
from safelaunch.why.read.scan import Compiled, Scanner

# Blocks that fit the L2 cache, and that malloc keeps in the process: from 128 KiB on it maps pages for each
# (mallopt(3), M_MMAP_THRESHOLD). Measured: 0.81 GB/s at 64-112 KiB, 0.62 at 256 KiB.
BLOCK = 112 << 10
LONG_BLOCKS = 4        # of a line that are searched; a line of 10 MB took a supervisor all the time that it has
OVERLAP = 512          # of two pieces of a line that is longer than a block, so that no literal is cut
LOOK_BACK = 64 << 10   # before a piece of a file: where a traceback of the piece may have begun
PIECE_GRANT = 10       # lines of each shape looked at again where a piece begins (Shapes.renew) …
RENEW_FROM = 4 << 20   # … if it is more than a sample
TAIL, TAIL_GRANT = 64 << 10, 600   # … and before the end of the file: the last lines often name the cause
ALIGN = 64 << 10       # how far the next line end is looked for


@dataclass(frozen=True)
class LogSource:
    """One log file, and what its name and first lines say about who wrote it."""

    path: str
    index: int
    size: int
    hosts: frozenset[bytes] = frozenset()
    written_t: float | None = None   # when it was last written to
    host: str | None = None
    rank: int | None = None

    def scanner(self, compiled: Compiled, shapes: Shapes) -> Scanner:
        """A scanner for this file."""
        return Scanner(compiled, self.index, shapes, hosts=self.hosts, host=self.host, rank=self.rank)


def scan_piece(
    source: LogSource, start: int, end: int, compiled: Compiled, shapes: Shapes, *, numbered: bool = False,
) -> Part:
    """What lies in [start, end) of the file; both are starts of lines, or nearly. Lines are counted from 1 on."""
    scanner = source.scanner(compiled, shapes)
    fd = sharedfile.open_log(source.path)

    def read(offset: int, size: int) -> bytes:
        return os.pread(fd, size, offset)

    try:
        if start > 0:
            warm_up(fd, start, scanner)
        if end - start >= RENEW_FROM:
            shapes.renew(PIECE_GRANT)
        tail = max(start, align(fd, end - TAIL)) if end >= source.size else end
        number = scan_blocks(read, start, tail, scanner, 1 if numbered else None)
        if tail < end:
            shapes.renew(TAIL_GRANT)
            scan_blocks(read, tail, end, scanner, number)
    finally:
        os.close(fd)
    return scanner.finish(is_end=end >= source.size)


def warm_up(fd: int, start: int, scanner: Scanner) -> None:
    """Let the scanner read what is before the piece, and forget its findings: an open traceback stays open."""
    low = align(fd, max(0, start - LOOK_BACK))
    if low < start:
        scanner.feed(os.pread(fd, start - low, low), low)
        scanner.forget()


def scan_blocks(
    read: Callable[[int, int], bytes], start: int, end: int, scanner: Scanner, number: int | None,
) -> int | None:
    """Feed [start, end) block by block; `read` gives (offset, size) → bytes, fewer only at the end of the file.

    Of a line that fills many blocks only the first ones are read, and the last. Returns the number of the line after
    the last one, when `number`, that of the first one, is known.
    """
    at, within = start, 0   # `within`: blocks since the last line end
    while at < end:
        size = min(BLOCK, end - at)
        block = read(at, size)
        if not block:
            break
        is_last = len(block) < size or at + len(block) >= end
        cut = len(block) if is_last else max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        within = 0 if cut else within + 1
        if within > LONG_BLOCKS:
            at += len(block)
            continue
        piece = block[:cut] if 0 < cut < len(block) else block
        newlines = scanner.feed(piece, at, number)
        number = number + newlines if number is not None else None
        at += len(piece)
        if cut == 0:
            at -= OVERLAP
    return number


def align(fd: int, offset: int) -> int:
    """The start of the first line at or after the offset; the offset itself where no line end is near."""
    if offset <= 0:
        return 0
    for size in (ALIGN >> 4, ALIGN):   # most lines are short
        near = os.pread(fd, size, offset - 1)
        found = near.find(b"\n")
        if found >= 0:
            return offset + found
    found = near.find(b"\r")
    return offset + found if found >= 0 else offset


def extents(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that are no holes: a log cut under a writer that does not append begins with one."""
    while (low := sharedfile.first_data(fd, start)) < end:
        try:
            start = min(end, os.lseek(fd, low, os.SEEK_HOLE))
        except OSError:   # ENXIO: it was cut meanwhile
            return
        yield low, start


def count_lines(fd: int, start: int, end: int) -> int:
    """How many lines end in [start, end) of a file."""
    count = 0
    while start < end:
        block = os.pread(fd, min(BLOCK, end - start), start)
        if not block:
            break
        count += block.count(b"\n")
        start += len(block)
    return count


def learn_source(path: str, index: int, *, host: str | None = None, rank: int | None = None) -> LogSource:
    """The file as it is now; its first lines tell whether names of hosts label them."""
    fd = sharedfile.open_log(path)
    try:
        stat = os.fstat(fd)
        hosts = loglines.learn_hosts(os.pread(fd, 1 << 16, 0))
        return LogSource(path, index, stat.st_size, hosts, stat.st_mtime, host, rank)
    finally:
        os.close(fd)
