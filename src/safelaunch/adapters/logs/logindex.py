"""What is known of a log that still grows, so that after a failure only its unread tail is read.

An index is brought up to date by a disposable child (liveindex) or by hand, never by the supervisor itself:
rules and shapes take memory that it may not. It is kept as JSON; one that is damaged, of other rules or of another file
is as good as none. The log may lose its beginning meanwhile: the pump punches holes into the spool behind itself.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from safelaunch.adapters import sharedfile
from safelaunch.adapters.logs import logbounds, logchunks
from safelaunch.adapters.logs.logchunks import Source
from safelaunch.core.why.findings import Finding, Progress, Rule
from safelaunch.core.why.prefilter import Shapes
from safelaunch.core.why.scan import Compiled, Part, merge_parts

VERSION = 2
WITNESS = 256           # bytes before the position: a file that was cut or replaced has others there
PIECE = 32 << 20        # read in one go; where its lines were counted, a line in it is numbered in 25 ms
MOST_MARKS = 4096
MOST_MISSING = 512 << 20   # more is rather read with all the rest, as if there were no index

Mark = tuple[int, int]   # an offset, and how many lines end before it


@dataclass(frozen=True)
class LogIndex:
    """What the rules found in the first `position` bytes of a log; `rules` tells one set of rules from another.

    `lines` end before the position; None = nobody counted them all. `marks` number lines in between, in order. `holes`
    are [start, end) of the log that were gone before they could be read: a copy of the log may have them.
    """

    position: int = 0
    witness: str = ""
    rules: int = 0
    read: int = 0
    part: Part = field(default_factory=Part)
    lines: int | None = 0
    marks: tuple[Mark, ...] = ()
    holes: tuple[tuple[int, int], ...] = ()


def update(index: LogIndex | None, log: Path, rules: Iterable[Rule]) -> LogIndex:
    """The index with all whole lines that the log has now. Raises OSError where the log cannot be read."""
    rules = tuple(rules)
    known = index if index is not None and is_of(index, log, rules) else LogIndex(rules=fingerprint(rules))
    source = logchunks.learn_source(str(log), 0)
    fd = sharedfile.open_log(log)
    try:
        known = _behind_hole(known, fd, source.size)
        end = _last_line_end(fd, known.position, source.size)
        if end <= known.position:
            return known
        compiled = Compiled(rules)
        source = replace(source, size=end)
        pieces = logbounds.choose_pieces(source, compiled, start=known.position)
        found = _read(known, source, fd, pieces, compiled)
        # What became a hole while it was read was read as zeros: better known as a hole, the next time.
        return found if first_data(fd, known.position) == known.position else known
    finally:
        os.close(fd)


def begin(log: Path, rules: Iterable[Rule]) -> LogIndex:
    """An index that knows nothing, and stands behind the hole that the log begins with."""
    fd = sharedfile.open_log(log)
    try:
        return _behind_hole(LogIndex(rules=fingerprint(rules)), fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def is_of(index: LogIndex, log: Path, rules: Iterable[Rule]) -> bool:
    """Whether the index is one of this file and these rules; of a part that has become a hole nobody can tell."""
    if index.rules != fingerprint(rules) or index.position > log.stat().st_size:
        return False
    if sum(end - start for start, end in missing_in(index, log)) > MOST_MISSING:
        return False
    fd = sharedfile.open_log(log)
    try:
        start = max(0, index.position - WITNESS)
        return first_data(fd, start) > start or _witness(fd, index.position) == index.witness
    finally:
        os.close(fd)


def missing_in(index: LogIndex, log: Path) -> list[tuple[int, int]]:
    """The parts before the index's position that it does not know and this file has: in another copy they were gone."""
    if not index.holes:
        return []
    fd = sharedfile.open_log(log)
    try:
        return [(start, end) for start, end in index.holes if first_data(fd, start) < end]
    finally:
        os.close(fd)


def _behind_hole(known: LogIndex, fd: int, size: int) -> LogIndex:
    """The same, but after the hole where the log should go on: what was there is gone, and nobody counts its lines."""
    data = min(size, first_data(fd, known.position))
    if data == known.position:
        return known
    position = logchunks.align(fd, data) if data < size else size
    hole = (known.position, position)
    return replace(known, position=position, witness=_witness(fd, position), lines=None, holes=(*known.holes, hole))


def _read(known: LogIndex, source: Source, fd: int, pieces: Sequence[tuple[int, int]], compiled: Compiled) -> LogIndex:
    """What is known, with what these pieces of the log hold; the lines between them are only counted."""
    shapes = Shapes(compiled.literals, words=compiled.words)
    at, lines, marks = known.position, known.lines, list(known.marks)
    parts, read = [known.part], known.read
    for start, end in cut_pieces(source, pieces):
        while at < start and lines is not None:
            until = min(start, at + PIECE)
            lines, at = lines + count_lines(fd, at, until), until
            marks.append((at, lines))
        part = logchunks.scan_piece(source, start, end, compiled, shapes, numbered=True)
        parts.append(number_lines(part, lines))
        lines = lines + part.newlines if lines is not None else None
        marks += [(end, lines)] if lines is not None else []
        at, read = end, read + end - start
    while len(marks) > MOST_MARKS:
        marks = marks[1::2]
    return LogIndex(source.size, _witness(fd, source.size), known.rules, read, _prune(merge_parts(parts)), lines,
                    tuple(marks), known.holes)


def cut_pieces(source: Source, pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pieces cut into such as one worker takes at a time, at starts of lines."""
    if source.size <= PIECE:
        return [piece for piece in pieces if piece[1] > piece[0]]
    fd = sharedfile.open_log(source.path)
    try:
        cuts: list[tuple[int, int]] = []
        for start, end in pieces:
            bounds = [logchunks.align(fd, at) for at in range(start, end, PIECE)]
            last = source.size if end >= source.size else logchunks.align(fd, end)
            cuts.extend((low, high) for low, high in zip(bounds, [*bounds[1:], last], strict=True) if high > low)
        return cuts
    finally:
        os.close(fd)


def data_of(source: Source, pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pieces without the holes in them: a log that was cut under a writer that does not append begins with one."""
    fd = sharedfile.open_log(source.path)
    try:
        if os.fstat(fd).st_blocks * 512 >= source.size:
            return list(pieces)
        return [extent for start, end in pieces for extent in _extents(fd, start, end)]
    finally:
        os.close(fd)


def _extents(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that are no holes."""
    while (low := first_data(fd, start)) < end:
        try:
            start = min(end, os.lseek(fd, low, os.SEEK_HOLE))
        except OSError:   # ENXIO: it was cut meanwhile
            return
        yield low, start


def is_hole(source: Source, start: int, end: int) -> bool:
    """Whether [start, end) is nothing, or nothing but a hole."""
    if start >= end:
        return start == end
    fd = sharedfile.open_log(source.path)
    try:
        return first_data(fd, start) >= end
    finally:
        os.close(fd)


def count_lines(fd: int, start: int, end: int) -> int:
    """How many lines end in [start, end) of a file."""
    count = 0
    while start < end:
        block = os.pread(fd, min(logchunks.BLOCK, end - start), start)
        if not block:
            break
        count += block.count(b"\n")
        start += len(block)
    return count


def number_lines(part: Part, before: int | None) -> Part:
    """The part with lines numbered from the file's start; `before` None = nobody counted the lines before it."""
    if before == 0:
        return part
    findings = [found._replace(line_number=None if before is None else (found.line_number or 0) + before)
                for found in part.findings]
    return replace(part, findings=findings)


def first_data(fd: int, offset: int) -> int:
    """The first byte from the offset on that is no hole; the file's size where all of it is one."""
    size = os.fstat(fd).st_size
    try:
        return os.lseek(fd, offset, os.SEEK_DATA) if offset < size else offset
    except OSError as error:
        return size if error.errno == errno.ENXIO else offset   # EINVAL: a file system without holes


def load(path: Path) -> LogIndex | None:
    """The index as it was saved; None = there is none that can be used."""
    try:
        kept = sharedfile.read_json(path)
        if kept["v"] != VERSION:
            return None
        part = Part(
            [_finding(Finding(*found)) for found in kept["findings"]],
            {(host, rank): (Progress(*first), Progress(*last), Progress(*highest))
             for host, rank, first, last, highest in kept["progress"]},
            [Progress(*sign) for sign in kept["recent"]], dict(kept["counts"]), kept["newlines"])
        marks = tuple((int(offset), int(lines)) for offset, lines in kept["marks"])
        holes = tuple((int(start), int(end)) for start, end in kept["holes"])
        found = LogIndex(int(kept["position"]), str(kept["witness"]), kept["rules"], int(kept["read"]), part,
                         kept["lines"], marks, holes)
        return found if _is_sound(found) else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _is_sound(index: LogIndex) -> bool:
    """Whether the values are of the kinds that the judge reckons with: the file may be somebody else's."""
    part = index.part
    signs = [sign for signs in (*part.progress.values(), part.recent) for sign in signs]
    heard: list[Finding | Progress] = [*part.findings, *signs]
    numbers = [index.lines, part.newlines, *part.counts.values(), *(one.line_number for one in part.findings),
               *(one.rank for one in heard), *(sign.step for sign in signs)]
    texts = [text for one in part.findings for text in (one.rule, one.text, *one.block, *one.groups.values())]
    return (all(isinstance(number, int | None) for number in numbers) and index.position >= 0
            and all(isinstance(text, str) for text in texts)
            and all(isinstance(one.offset, int) and isinstance(one.host, str | None)
                    and isinstance(one.t, float | int | None) for one in heard)
            and all(isinstance(one.chain, int) for one in part.findings))


def save(index: LogIndex, path: Path) -> None:
    """Publish the index; whoever reads meets the old one or the new one."""
    part = index.part
    text = json.dumps({
        "v": VERSION, "position": index.position, "witness": index.witness, "rules": index.rules, "read": index.read,
        "lines": index.lines, "marks": index.marks, "holes": index.holes,
        "findings": part.findings, "recent": part.recent, "counts": part.counts, "newlines": part.newlines,
        "progress": [(*speaker, *signs) for speaker, signs in part.progress.items()]})
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with temporary.open("w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def fingerprint(rules: Iterable[Rule]) -> int:
    """A number that changes when a rule does."""
    return zlib.crc32(repr([(rule.id, rule.anchor, rule.pattern, rule.role, rule.order) for rule in rules]).encode())


def _finding(read: Finding) -> Finding:
    """A finding as JSON gives it, with its own types again."""
    return read._replace(groups=dict(read.groups), block=tuple(read.block))


def _prune(part: Part) -> Part:
    """The part without what the training got over long ago; what was counted stays counted."""
    if not part.recent:
        return part
    low = part.recent[0].offset - logbounds.MARGIN
    part.findings = [found for found in part.findings if found.offset >= low or found.offset < logbounds.HEAD]
    return part


def _last_line_end(fd: int, low: int, size: int) -> int:
    """Where the last whole line ends; a line that is still being written is left for later, unless it is endless."""
    start = max(low, size - logchunks.ALIGN)
    found = os.pread(fd, size - start, start).rfind(b"\n")
    if found < 0:
        return size if size - low > logchunks.ALIGN else low
    return start + found + 1


def _witness(fd: int, position: int) -> str:
    return f"{zlib.crc32(os.pread(fd, min(WITNESS, position), max(0, position - WITNESS))):08x}"
