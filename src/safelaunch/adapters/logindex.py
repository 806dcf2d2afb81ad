"""What is known of a log that still grows, so that after a failure only its unread tail is read.

An index is brought up to date by a disposable child or by hand, never by the supervisor itself: rules and shapes take
memory that it may not. It is kept as JSON; one that is damaged, of other rules or of another file is as good as none.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from safelaunch.adapters import logbounds, logchunks
from safelaunch.core.findings import Finding, Progress, Rule
from safelaunch.core.prefilter import Shapes
from safelaunch.core.scan import Compiled, Part, merge_parts

VERSION = 1
WITNESS = 256     # bytes before the position: a file that was cut or replaced has others there


@dataclass(frozen=True)
class LogIndex:
    """What the rules found in the first `position` bytes of a log; `rules` tells one set of rules from another."""

    position: int = 0
    witness: str = ""
    rules: int = 0
    read: int = 0
    part: Part = field(default_factory=Part)


def update(index: LogIndex | None, log: Path, rules: Iterable[Rule]) -> LogIndex:
    """The index with all whole lines that the log has now. Raises OSError where the log cannot be read."""
    rules = tuple(rules)
    compiled = Compiled(rules)
    known = index if index is not None and is_of(index, log, rules) else LogIndex(rules=fingerprint(rules))
    source = logchunks.learn_source(str(log), 0)
    fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    try:
        end = _last_line_end(fd, known.position, source.size)
        if end <= known.position:
            return known
        source = replace(source, size=end)
        pieces = logbounds.choose_pieces(source, compiled, start=known.position)
        shapes = Shapes(compiled.literals, words=compiled.words)
        parts = [logchunks.scan_piece(source, start, stop, compiled, shapes) for start, stop in pieces]
        part = _prune(merge_parts([known.part, *parts]))
        read = known.read + sum(stop - start for start, stop in pieces)
        return LogIndex(end, _witness(fd, end), known.rules, read, part)
    finally:
        os.close(fd)


def is_of(index: LogIndex, log: Path, rules: Iterable[Rule]) -> bool:
    """Whether the index is one of this file and these rules."""
    if index.rules != fingerprint(rules) or index.position > log.stat().st_size:
        return False
    fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _witness(fd, index.position) == index.witness
    finally:
        os.close(fd)


def load(path: Path) -> LogIndex | None:
    """The index as it was saved; None = there is none that can be used."""
    try:
        kept = json.loads(path.read_text())
        if kept["v"] != VERSION:
            return None
        part = Part(
            [_finding(Finding(*found)) for found in kept["findings"]],
            {(host, rank): (Progress(*first), Progress(*last), Progress(*highest))
             for host, rank, first, last, highest in kept["progress"]},
            [Progress(*sign) for sign in kept["recent"]], dict(kept["counts"]), kept["newlines"])
        return LogIndex(kept["position"], kept["witness"], kept["rules"], kept["read"], part)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def save(index: LogIndex, path: Path) -> None:
    """Publish the index; whoever reads meets the old one or the new one."""
    part = index.part
    text = json.dumps({
        "v": VERSION, "position": index.position, "witness": index.witness, "rules": index.rules, "read": index.read,
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
