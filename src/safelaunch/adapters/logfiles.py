"""Logs as they lie on disk: plain, gzipped, or piped in → one Log.

A log is never read whole into memory, and nothing in it can make the reader fail: binary bytes, lines of any length,
a file that ends amid a line or amid a gzip member.
"""

from __future__ import annotations

import gzip
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from safelaunch.core import loglines
from safelaunch.core.findings import CLOCK_ORDER, CLOCK_STAMPS, Line, Log, Rule
from safelaunch.core.prefilter import Shapes
from safelaunch.core.scan import Compiled, Scanner, merge_progress

BLOCK = 1 << 20
LAST_LINES = 40


def read_logs(paths: Sequence[Path], rules: Iterable[Rule]) -> Log:
    """What the rules find in the logs; "-" is standard input. Raises OSError where a file cannot be opened."""
    compiled = Compiled(rules)
    parts = [_read(path, index, compiled) for index, path in enumerate(paths)]
    scanners = [scanner for scanner, *_ in parts]
    findings = tuple(sorted((finding for scanner in scanners for finding in scanner.part.findings),
                            key=lambda finding: (finding.file, finding.offset)))
    counts: dict[str, int] = {}
    for scanner in scanners:
        for rule, count in scanner.part.counts.items():
            counts[rule] = counts.get(rule, 0) + count
    stamped = sum(finding.t is not None for finding in findings)
    return Log(
        files=tuple(str(path) for path in paths), findings=findings,
        progress=merge_progress(scanner.part.progress for scanner in scanners),
        last=tuple(line for _, last, _, _ in parts for line in last), counts=counts,
        size_bytes=sum(size for *_, size, _ in parts), read_bytes=sum(size for *_, size, _ in parts),
        truncated=any(truncated for *_, truncated in parts),
        clock=CLOCK_STAMPS if findings and stamped * 2 >= len(findings) else CLOCK_ORDER,
    )


def _read(path: Path, index: int, compiled: Compiled) -> tuple[Scanner, tuple[Line, ...], int, bool]:
    scanner: Scanner | None = None
    tail = b""
    size = 0
    truncated = False
    with open_log(path) as stream:
        blocks = _blocks(stream)
        while True:
            try:
                block = next(blocks, None)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                truncated = True
                break
            if block is None:
                break
            if scanner is None:
                number = 1
                shapes = Shapes(compiled.literals)
                hosts = loglines.learn_hosts(block[:65536])
                scanner = Scanner(compiled, index, shapes, hosts=hosts, year=_year(path))
            scanner.feed(block, size, number)
            number += block.count(b"\n")
            size += len(block)
            tail = (tail + block)[-65536:]
    if scanner is None:
        scanner = Scanner(compiled, index, Shapes(compiled.literals))
    truncated = truncated or (bool(tail) and not tail.endswith((b"\n", b"\r")))
    return scanner, _last_lines(tail, index, size), size, truncated


def open_log(path: Path) -> BinaryIO:
    """The log's bytes, decompressed when it begins as gzip does."""
    if str(path) == "-":
        return sys.stdin.buffer
    stream = path.open("rb")
    magic = os.pread(stream.fileno(), 2, 0) if path.is_file() else b""
    return gzip.GzipFile(fileobj=stream) if magic == b"\x1f\x8b" else stream  # type: ignore[return-value]


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of whole lines; a line longer than a block comes in pieces."""
    rest = b""
    while True:
        block = stream.read(BLOCK)
        if not block:
            break
        cut = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if cut == 0 and len(rest) < 4 * BLOCK:
            rest += block
            continue
        yield rest + block[:cut] if cut else rest + block
        rest = block[cut:] if cut else b""
    if rest:
        yield rest


def _last_lines(tail: bytes, index: int, size: int) -> tuple[Line, ...]:
    lines: list[Line] = []
    at = size - len(tail)
    for raw in tail.splitlines(keepends=True):
        parsed = loglines.parse(raw[:8192].strip(b"\r\n"))
        if parsed.payload.strip():
            lines.append(Line(index, at, None, loglines.text(parsed.payload), parsed.host, parsed.rank, parsed.t))
        at += len(raw)
    return tuple(lines[-LAST_LINES:])


def _year(path: Path) -> int | None:
    try:
        return time.gmtime(path.stat().st_mtime).tm_year
    except OSError:
        return None
