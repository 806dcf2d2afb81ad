"""Logs on disk, plain, gzipped or piped in → one Log.

A log is never read whole into memory, and nothing in it can make the reader fail. It may hold binary bytes and lines of
any length, and end within a line or a gzip member.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from safelaunch.base.io import sharedfile
from safelaunch.why import loglines
from safelaunch.why.findings import CLOCK_ORDER, CLOCK_STAMPS, Finding, Line, Log, Pattern, Progress, Rule
from safelaunch.why.io import logbounds, logchunks
from safelaunch.why.io.logchunks import LogSource
from safelaunch.why.order import clocks
from safelaunch.why.read.parts import Part, merge_parts
from safelaunch.why.read.prefilter import Shapes
from safelaunch.why.read.scan import Compiled
from safelaunch.why.rulebook import BY_ID

PARALLEL_FROM = 48 << 20    # less is read faster than workers are started
LAST_LINES = 40
STDIN = 0
MOST_CONTROL = 0.05         # of a text's bytes; of random ones it is 0.11
HOST_FOLDERS = ("nodes", "system")   # of an attempt: each file is named after a host
TAIL = 64 << 10


@dataclass
class _FileReading:
    """What reading one file gave."""

    part: Part
    last: tuple[Line, ...] = ()
    size: int = 0
    read: int = 0
    lines: int | None = None
    truncated: bool = False
    written_t: float | None = None
    odd: str = ""


class _Task(NamedTuple):
    """A piece of a plain file, as a worker gets it."""

    source: LogSource
    start: int
    end: int


def read_logs(
    paths: Sequence[Path], rules: Iterable[Rule], *, thorough: bool = False, workers: int | None = None,
    compiled: Compiled | None = None,
) -> Log:
    """What the rules find in the logs; "-" is standard input. Raises OSError where a file cannot be opened.

    Of a big log only what can matter is read (see logbounds), unless `thorough`. At most `workers` processes share the
    work, by default one for each core. `compiled`: these rules.
    """
    rules = tuple(rules)
    compiled = compiled or Compiled(rules, compile_rule)
    readings: dict[int, _FileReading] = {}
    plain: list[LogSource] = []
    for index, path in enumerate(paths):
        if str(path) != "-" and path.is_file() and not _is_gzip(path):
            plain.append(_source(path, index, len(paths)))
        else:
            readings[index] = _read_stream(path, index, compiled)
    readings.update(_read_plain(plain, compiled, thorough, workers or len(os.sched_getaffinity(0))))
    log = _join([str(path) for path in paths], [readings[index] for index in range(len(paths))])
    return replace(log, rules=tuple(rule for rule in rules if rule.id not in BY_ID))


def compile_rule(rule: Rule) -> Pattern:
    """The rule's pattern; one of a rule pack has a limit of time."""
    pattern = re.compile(rule.pattern)
    if rule.id in BY_ID:
        return pattern
    from safelaunch.why.io.limited import LimitedPattern  # most machines have no packs

    return LimitedPattern(rule.id, pattern)


# --- plain files ----------------------------------------------------------------------------------------------------


def _read_plain(
    sources: Sequence[LogSource], compiled: Compiled, thorough: bool, workers: int,
) -> dict[int, _FileReading]:
    tasks: list[_Task] = []
    for source in sources:
        pieces = logbounds.choose_pieces(source, compiled, thorough=thorough)
        tasks.extend(_Task(source, start, end) for start, end in logbounds.cut_pieces(source, pieces))
    parts: dict[int, list[tuple[_Task, Part]]] = {source.index: [] for source in sources}
    for task, part in zip(tasks, _run(tasks, compiled, workers), strict=True):
        parts[task.source.index].append((task, part))
    return {source.index: _join_parts(source, parts[source.index]) for source in sources}


def _join_parts(source: LogSource, parts: Sequence[tuple[_Task, Part]]) -> _FileReading:
    """The parts of one file as one; lines are numbered as far as nothing before them was left out."""
    at = 0
    lines: int | None = 0
    numbered: list[Part] = []
    for task, part in parts:
        lines = lines if task.start == at else None
        numbered.append(_number_lines(part, lines))
        at, lines = task.end, lines + part.newlines if lines is not None else None
    whole = merge_parts(numbered)
    read = sum(task.end - task.start for task, _ in parts)
    known = lines if at == source.size else None
    tail = _tail_of(source)
    last = _last_lines(tail, source.index, source.size, known)
    return _FileReading(whole, last, source.size, read, known, _is_torn(tail), source.written_t, _odd_about(tail))


def _number_lines(part: Part, before: int | None) -> Part:
    """The part with lines numbered from the file's start; `before` None = the lines before it were not all read."""
    if before == 0:
        return part
    findings = [found._replace(line_number=None if before is None else (found.line_number or 0) + before)
                for found in part.findings]
    return replace(part, findings=findings)


_worker: tuple[Compiled, Shapes] | None = None   # a forked worker's own; shapes are remembered over its tasks


def _run(tasks: Sequence[_Task], compiled: Compiled, workers: int) -> Iterable[Part]:
    """The part that each task gives, in order. Forked workers share the rules and what was compiled of them."""
    workers = min(workers, len(tasks))
    if workers < 2 or sum(task.end - task.start for task in tasks) < PARALLEL_FROM:
        shapes = Shapes(compiled.literals, words=compiled.words)
        return [_scan(task, compiled, shapes) for task in tasks]
    import multiprocessing  # 10 ms that a log of the common size does not need

    with multiprocessing.get_context("fork").Pool(workers, _start_worker, (compiled,)) as pool:
        return list(pool.imap(_work, tasks))


def _start_worker(compiled: Compiled) -> None:
    global _worker
    _worker = (compiled, Shapes(compiled.literals, words=compiled.words))


def _work(task: _Task) -> Part:
    assert _worker is not None
    return _scan(task, *_worker)


def _scan(task: _Task, compiled: Compiled, shapes: Shapes) -> Part:
    return logchunks.scan_piece(task.source, task.start, task.end, compiled, shapes, numbered=True)


# --- streams --------------------------------------------------------------------------------------------------------


def _read_stream(path: Path, index: int, compiled: Compiled) -> _FileReading:
    """What a gzipped file or a pipe holds, read from its start to its end."""
    with _open_stream(path) as stream:
        feed = _Feed(stream.read1 if hasattr(stream, "read1") else stream.read)
        head = feed(0, 1 << 16)
        source = LogSource(str(path), index, 0, loglines.learn_hosts(head), None, *_names_of(path))
        shapes = Shapes(compiled.literals, words=compiled.words)
        feed.at_end = lambda: shapes.renew(logchunks.TAIL_GRANT)
        scanner = source.scanner(compiled, shapes)
        logchunks.scan_blocks(feed, 0, sys.maxsize, scanner, 1)
    part = scanner.finish()
    tail = feed.tail
    odd = "its compressed data are damaged or not complete" if feed.is_broken else _odd_about(tail)
    return _FileReading(part, _last_lines(tail, index, feed.end, part.newlines), feed.end, feed.end, part.newlines,
                        _is_torn(tail), _written_t(path), odd)


class _Feed:
    """A stream read as if it had offsets: only what was taken last may be asked for again."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._held = b""
        self._start = 0
        self.tail = b""
        self.is_broken = False
        self.at_end: Callable[[], None] | None = None   # called once, when less than a block is left

    @property
    def end(self) -> int:
        return self._start + len(self._held)

    def __call__(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on, fewer at the end."""
        self._held = self._held[offset - self._start:]
        self._start = offset
        while len(self._held) < size + TAIL:
            more = self._more(size + TAIL - len(self._held))
            if not more:
                if self.at_end is not None:
                    self.at_end()
                    self.at_end = None
                break
            self._held += more
            self.tail = (self.tail + more)[-TAIL:]
        return self._held[:size]

    def _more(self, size: int) -> bytes:
        """The next bytes; b"" at the end, which may be that of a torn gzip member."""
        try:
            return b"" if self.is_broken else self._read(max(size, 1 << 16))
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.is_broken = True
            return b""


def _open_stream(path: Path) -> BinaryIO:
    if str(path) == "-":
        return os.fdopen(os.dup(STDIN), "rb")
    stream = path.open("rb")
    return gzip.GzipFile(fileobj=stream) if _is_gzip(path) else stream  # type: ignore[return-value]


def _is_gzip(path: Path) -> bool:
    if not path.is_file():
        return False
    with os.fdopen(sharedfile.open_log(path), "rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


# --- what a file's name and end say ---------------------------------------------------------------------------------

_CONTROL = bytes(byte for byte in range(32) if byte not in b"\t\n\r\x1b")
_RANK_NAME = re.compile(r"(?:^|[^a-z])(?:rank|task)[-_.]?(\d{1,6})(?:[^\d]|$)", re.IGNORECASE)
_NODE_NAME = re.compile(
    r"(?:^|[-_.])((?!(?:slurm|job|rank|task|attempt|log|out|err|step|train|run|part|epoch|version|v)[-_]?\d)"
    r"[a-z][a-z0-9]{0,62}-?\d{1,12}(?:[a-z]\d{1,12})?)$")


def _names_of(path: Path) -> tuple[str | None, int | None]:
    """The host and the rank of the file, by its name: system/<host>.log, …/<local rank>/stderr.log."""
    stem = path.name.removesuffix(".gz").removesuffix(".txt").rsplit(".", 1)[0]
    if path.parent.name in HOST_FOLDERS:
        return path.name.removesuffix(".gz").removesuffix(".log"), None
    if stem in ("stdout", "stderr", "error") and path.parent.name.isdigit():   # torchrun --log-dir
        return None, int(path.parent.name)
    rank = _RANK_NAME.search(stem)
    if rank is not None:
        return None, int(rank[1])
    host = _NODE_NAME.search(stem)
    return (host[1] if host else None), None


def _source(path: Path, index: int, count: int) -> LogSource:
    host, rank = _names_of(path) if count > 1 or path.parent.name in HOST_FOLDERS else (None, None)
    return logchunks.learn_source(str(path), index, host=host, rank=rank)


def _written_t(path: Path) -> float | None:
    """When the file was last written to; a pipe has no such time."""
    return path.stat().st_mtime if path.is_file() else None


def _tail_of(source: LogSource) -> bytes:
    fd = sharedfile.open_log(source.path)
    try:
        return os.pread(fd, TAIL, max(0, source.size - TAIL))
    finally:
        os.close(fd)


def _odd_about(tail: bytes) -> str:
    """What a reader should know of an unusual log file, judged by its end; "" for a usual one."""
    if not tail:
        return "it is empty"
    control = len(tail) - len(tail.translate(None, _CONTROL))
    return "it is hardly text" if control > len(tail) * MOST_CONTROL else ""


def _is_torn(tail: bytes) -> bool:
    return bool(tail) and not tail.endswith((b"\n", b"\r"))


def _last_lines(tail: bytes, index: int, size: int, newlines: int | None) -> tuple[Line, ...]:
    lines: list[Line] = []
    at = size
    for raw in reversed(tail.splitlines(keepends=True)):
        at -= len(raw)
        line = raw[:8192].strip(b"\r\n")
        parsed = loglines.parse(line)
        if parsed.payload.strip():
            number = newlines + 1 - tail.count(b"\n", at - size + len(tail)) if newlines is not None else None
            lines.append(Line(index, at, number, loglines.text(parsed.payload), parsed.host, parsed.rank, parsed.t,
                              loglines.level_of(line, parsed.payload)))
            if len(lines) == LAST_LINES:
                break
    return tuple(reversed(lines))


def _join(files: Sequence[str], readings: Sequence[_FileReading]) -> Log:
    """All files as one log, on one clock as far as that is known."""
    counts: Counter[str] = Counter()
    findings: list[Finding] = []
    progress: list[Progress] = []
    last: list[Line] = []
    for reading in readings:
        counts.update(reading.part.counts)
        signs = {sign for signs in (*reading.part.progress.values(), reading.part.recent) for sign in signs}
        settled = clocks.settle_file(reading.part.findings, sorted(signs, key=lambda sign: sign.offset), reading.last,
                                     reading.written_t)
        findings.extend(settled[0])
        progress.extend(settled[1])
        last.extend(settled[2])
    offsets_s = clocks.estimate_offsets(findings, progress, last, files)
    stamped = sum(finding.t is not None for finding in findings)
    lines = [reading.lines for reading in readings]
    return Log(
        files=tuple(files), findings=clocks.correct(findings, offsets_s, files),
        progress=clocks.correct(progress, offsets_s, files), last=clocks.correct(last, offsets_s, files), counts=counts,
        size_bytes=sum(reading.size for reading in readings), read_bytes=sum(reading.read for reading in readings),
        lines=None if None in lines else sum(count or 0 for count in lines),
        truncated=any(reading.truncated for reading in readings),
        odd=tuple(f"{file}: {reading.odd}" for file, reading in zip(files, readings, strict=True) if reading.odd),
        clock=CLOCK_STAMPS if findings and stamped * 2 >= len(findings) else CLOCK_ORDER, offsets_s=offsets_s,
    )
