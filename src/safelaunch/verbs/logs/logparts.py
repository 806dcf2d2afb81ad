"""The training's log across attempts, as it is now: whole, its last lines, or the lines that are wanted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from safelaunch.base.io import sharedfile
from safelaunch.verbs.logs.attemptlogs import CHUNK_BYTES, AttemptLog, LogChoice, LogPart, starts
from safelaunch.verbs.logs.rankfold import RankFold

MOST_LINE_BYTES = 1 << 20   # a longer line is looked at in pieces: one of gigabytes would take as much memory
HOLD_S = 0.5                # a line of `-f --fold` waits so long for its equals


def read_logs(choice: LogChoice, logs: list[AttemptLog], lines: int | None) -> Iterator[LogPart]:
    """The wanted lines, or the last `lines` of them. Without a filter unchanged bytes, after an empty part for each
    log; with one a line each.
    """
    if any(choice.keep(log) for log in logs):
        wanted: Iterable[LogPart] = _filtered(choice, logs)
        yield from wanted if lines is None else deque(wanted, maxlen=lines)
        return
    for log, offset in starts(choice, logs, lines):
        yield log, b""
        with sharedfile.stream(log.path) as file:
            file.seek(offset)
            while chunk := file.read(CHUNK_BYTES):
                yield log, chunk
                _pass_hole(file, chunk)


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines; a very long one in pieces."""
    while line := file.readline(MOST_LINE_BYTES):
        yield line
        _pass_hole(file, line)


def _pass_hole(file: BinaryIO, data: bytes) -> None:
    """Go on behind a hole in which the data that was just read lies: it can have terabytes."""
    if not data[0] and len(data) >= CHUNK_BYTES and data == bytes(len(data)):
        file.seek(sharedfile.first_data(file.fileno(), file.tell()))


def split_lines(parts: Iterable[LogPart]) -> Iterator[LogPart]:
    """The same with one line a part, without its end; a very long one in pieces. Parts of several attempts may be
    mixed: each attempt's last line may come without an end.
    """
    rests: dict[int, LogPart] = {}
    for log, data in parts:
        *whole, rest = (rests.get(log.number, (log, b""))[1] + data).split(b"\n")
        yield from ((log, line) for line in whole)
        while len(rest) > MOST_LINE_BYTES:
            yield log, rest[:MOST_LINE_BYTES]
            rest = rest[MOST_LINE_BYTES:]
        rests[log.number] = (log, rest)
    yield from ((log, rest) for log, rest in rests.values() if rest)


def folded(parts: Iterable[LogPart], is_live: bool) -> Iterator[LogPart]:
    """The same with lines that several ranks print alike shown once. `is_live`: the parts come as they are written."""
    hold_s = HOLD_S if is_live else float("inf")
    fold, log, rest = RankFold(hold_s), None, b""
    for new, data in parts:
        now_s = time.monotonic() if is_live else 0.0
        if log is not None and new.number != log.number:
            yield log, b"".join([*(fold.add(rest, now_s) if rest else ()), *fold.rest()])
            fold, rest = RankFold(hold_s), b""
        log = new
        *whole, rest = (rest + data).split(b"\n")
        ready = [line for text in whole for line in fold.add(text + b"\n", now_s)]
        while len(rest) > MOST_LINE_BYTES:
            ready += fold.add(rest[:MOST_LINE_BYTES], now_s)
            rest = rest[MOST_LINE_BYTES:]
        yield log, b"".join([*ready, *fold.due(now_s)])
    if log is not None:
        yield log, b"".join([*(fold.add(rest, 0.0) if rest else ()), *fold.rest()])


def _filtered(choice: LogChoice, logs: list[AttemptLog]) -> Iterator[LogPart]:
    for log, offset in starts(choice, logs, None):
        keep = choice.keep(log)
        with sharedfile.stream(log.path) as file:
            file.seek(offset)
            for line in lines_of(file):
                # Of zeros, 2 GiB may stand there.
                if keep is None or ((line[0] or line != bytes(len(line))) and keep(line)):
                    yield log, line
