"""The numbers of lines that were found without them: what stood before was not read.

Counted when a verdict is shown, for its lines only: editors jump to line numbers, not bytes. Python counts 1 GB in
0.6 s of processor time; `wc -l` in 0.15 s (coreutils 9.1), with 0.2 s for the pipe that ends where the line stands.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from safelaunch.base.io import sharedfile
from safelaunch.why.findings import Cited
from safelaunch.why.io.logchunks import count_lines
from safelaunch.why.verdict import Verdict

BUDGET_S = 20.0    # 20 GB at 1 GB/s
LOOK_S = 1.0       # so long it is counted before its pace tells whether the budget will do
STEP = 1 << 20     # counted between two readings of the clock; the most that a user's pipe holds (pipe(7))
WC_FROM = 32 << 20

IsLate = Callable[[int, int], bool]   # (counted up to here, the line's offset)


def number_verdict(verdict: Verdict) -> Verdict:
    """The verdict with the numbers of its lines, the cause's file first, as far as the time allows."""
    wanted: dict[str, set[int]] = {}
    for one in _all_cited(verdict):
        if one.line_number is None:
            wanted.setdefault(one.file, set()).add(one.offset)
    until_s = time.monotonic() + BUDGET_S
    known = {(file, offset): number for file, offsets in wanted.items()
             for offset, number in line_numbers(Path(file), offsets, until_s - time.monotonic()).items()}
    return _numbered(verdict, known) if known else verdict


def line_numbers(path: Path, offsets: Iterable[int], budget_s: float = math.inf) -> dict[int, int]:
    """The numbers (from 1) of the lines that hold the offsets of a plain file, as far as there is time.

    At the pace so far: a line that would take longer is not counted for.
    """
    begun_s = time.monotonic()

    def is_late(at: int, offset: int) -> bool:
        spent_s = time.monotonic() - begun_s
        return spent_s > budget_s or (spent_s > LOOK_S and spent_s * offset > budget_s * at)

    numbers: dict[int, int] = {}
    try:
        fd = sharedfile.open_log(path)
    except OSError:
        return numbers
    try:
        at, number = 0, 1
        for offset in sorted(set(offsets)):
            counted = _count(fd, at, offset, is_late)
            if counted is None:
                return numbers
            at, number = offset, number + counted
            numbers[offset] = number
        return numbers
    finally:
        os.close(fd)


def _count(fd: int, start: int, end: int, is_late: IsLate) -> int | None:
    """How many lines end in [start, end) of the file; None = it takes too long."""
    if end - start >= WC_FROM:
        with contextlib.suppress(OSError, ValueError):   # no wc, or a file system whose pages no pipe takes
            return _count_by_wc(fd, start, end, is_late)
    count = 0
    for at in range(start, end, STEP):
        if is_late(at, end):
            return None
        count += count_lines(fd, at, min(end, at + STEP))
    return count


def _count_by_wc(fd: int, start: int, end: int, is_late: IsLate) -> int | None:
    """The same by `wc -l`, to which the file's pages are moved. Raises OSError or ValueError where it cannot."""
    import fcntl  # of a big file only
    import subprocess

    piped = subprocess.PIPE
    with subprocess.Popen(["wc", "-l"], stdin=piped, stdout=piped, stderr=subprocess.DEVNULL) as wc:
        assert wc.stdin is not None and wc.stdout is not None
        with wc.stdin as pipe:
            with contextlib.suppress(OSError):   # a user with many pipes gets small ones
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, STEP)
            while start < end:
                if is_late(start, end):
                    return None
                moved = os.splice(fd, pipe.fileno(), min(STEP, end - start), offset_src=start)
                if not moved:   # the file was cut meanwhile
                    break
                start += moved
        said = wc.stdout.read()
    return int(said)


def evidence_first(verdict: Verdict) -> tuple[Cited, ...]:
    """The lines that the verdict rests on."""
    return ((verdict.cause,) if verdict.cause is not None else ()) + verdict.cited[:1]


def _all_cited(verdict: Verdict) -> tuple[Cited, ...]:
    more = _all_cited(verdict.runner_up) if verdict.runner_up is not None else ()
    return (*evidence_first(verdict), *verdict.cited, *verdict.symptoms, *verdict.candidates, *more)


def _numbered(verdict: Verdict, known: Mapping[tuple[str, int], int]) -> Verdict:
    def number(cited: Cited) -> Cited:
        found = known.get((cited.file, cited.offset))
        return cited if found is None or cited.line_number is not None else cited._replace(line_number=found)

    return replace(
        verdict, cause=number(verdict.cause) if verdict.cause is not None else None,
        cited=tuple(map(number, verdict.cited)), symptoms=tuple(map(number, verdict.symptoms)),
        candidates=tuple(map(number, verdict.candidates)),
        runner_up=_numbered(verdict.runner_up, known) if verdict.runner_up is not None else None)
