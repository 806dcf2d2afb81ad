"""Which parts of a big log must be read: the last healthy progress bounds the search.

An error after which the training went on is not the cause of its end. So the reader goes back from the end in growing
strides until it sees steps, and halves the last stride a few times. It reads from a margin before that to the end.
Wrong guesses cost time only: everything after the found place is read, except the middle of a long silence.

It reads the head (launch, versions), MARGIN before the last progress, the next DEAD_HEAD and the last DEAD_TAIL. In
between, where an hour of echoes can fill gigabytes, it reads SAMPLE of every SAMPLE_EVERY or more. A log without steps
is read whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice

from safelaunch.base.io import sharedfile
from safelaunch.why.io import logchunks
from safelaunch.why.io.logchunks import LogSource
from safelaunch.why.read.parts import Speaker
from safelaunch.why.read.prefilter import QUOTA_DULL, Shapes
from safelaunch.why.read.scan import Compiled, Scanner

SMALL = 64 << 20         # a log up to this size is read whole
PIECE = 32 << 20         # read in one go
HEAD = 1 << 20
MARGIN = 16 << 20        # before the last progress: warnings, and the output of ranks that stopped early
PROBE = 256 << 10
STRIDE = 8 << 20         # precision of the place of the last progress
MOST_BACK = 1 << 30      # no search further back for a rank that stopped long before the others
DEAD_HEAD = 64 << 20     # a failure of 384 ranks with all their tracebacks fills a few
DEAD_TAIL = 32 << 20
SAMPLE, SAMPLE_EVERY, MOST_SAMPLES = 1 << 20, 16 << 20, 256
MOST_EXTENTS = 1000      # of a piece with holes; the pump leaves one

Pieces = list[tuple[int, int]]
Probe = Callable[[int], set[Speaker]]


def choose_pieces(source: LogSource, compiled: Compiled, *, thorough: bool = False) -> Pieces:
    """The pieces [start, end) of the file that are to be read, in order; they may have holes in them."""
    size = source.size
    fd = sharedfile.open_log(source.path)
    try:
        start = sharedfile.first_data(fd, 0)   # the pump punches holes into the spool behind itself
        if thorough or size - start <= SMALL:
            return [(0, size)]
        alive_at = find_last_alive(_prober(fd, source, compiled), size, start)
        if alive_at is None:
            return [(0, size)] if start == 0 else _of_dead(start, size)
        back_at = find_all_alive(_prober(fd, source, compiled, all_progress=True), alive_at)
    finally:
        os.close(fd)
    low = max(start, back_at - MARGIN)
    return _joined([*([(0, HEAD)] if start == 0 else []), (low, alive_at), *_of_dead(alive_at, size)])


def cut_pieces(source: LogSource, pieces: Iterable[tuple[int, int]]) -> Pieces:
    """The pieces cut for one worker each, at starts of lines, without the holes in them."""
    fd = sharedfile.open_log(source.path)
    try:
        is_sparse = os.fstat(fd).st_blocks * 512 < source.size
        cuts: Pieces = []
        for start, end in (piece for piece in pieces if piece[1] > piece[0]):
            last = source.size if end >= source.size else logchunks.align(fd, end)
            parts = islice(logchunks.extents(fd, start, last), MOST_EXTENTS) if is_sparse else [(start, last)]
            for low, high in parts:   # a hole's end is no line's
                bounds = [logchunks.align(fd, low) if low == start else low,
                          *(logchunks.align(fd, at) for at in range(low + PIECE, high, PIECE))]
                cuts.extend((one, two) for one, two in zip(bounds, [*bounds[1:], high], strict=True) if two > one)
        return cuts
    finally:
        os.close(fd)


def find_last_alive(probe: Probe, size: int, start: int = 0) -> int | None:
    """An offset ≥ start where steps were still made, at most a stride before the last such; None = there is none."""
    dead_at = size
    distance = PROBE
    while True:
        at = max(start, size - distance)
        if probe(at):
            break
        if at == start:
            return None
        dead_at = at
        distance *= 2
    alive_at = at
    while dead_at - alive_at > STRIDE:
        middle = (alive_at + dead_at) // 2
        if probe(middle):
            alive_at = middle
        else:
            dead_at = middle
    return alive_at


def find_all_alive(probe: Probe, alive_at: int) -> int:
    """An offset from which, up to `alive_at`, every rank made steps that had made some before."""
    missing = probe(max(0, alive_at - 8 * STRIDE)) | probe(max(0, alive_at - MOST_BACK))
    for distance in range(0, 8 * PROBE, PROBE):
        missing -= probe(max(0, alive_at - distance))
        if not missing:
            return alive_at
    distance = MARGIN
    while missing and distance < MOST_BACK and distance < alive_at:
        missing -= probe(alive_at - distance)
        distance *= 2
    return max(0, alive_at - min(distance, MOST_BACK))


def _joined(pieces: Pieces) -> Pieces:
    """The pieces joined where they touch, in order."""
    joined: Pieces = []
    for start, end in sorted(pieces):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _of_dead(start: int, size: int) -> Pieces:
    """The pieces to read of a part in which no steps are made."""
    if size - start <= DEAD_HEAD + DEAD_TAIL:
        return [(start, size)]
    every = max(SAMPLE_EVERY, (size - start) // MOST_SAMPLES)
    middle = range(start + DEAD_HEAD, size - DEAD_TAIL, every)
    return [(start, start + DEAD_HEAD), *((at, at + SAMPLE) for at in middle), (size - DEAD_TAIL, size)]


def _prober(fd: int, source: LogSource, compiled: Compiled, *, all_progress: bool = False) -> Probe:
    """Who makes steps in the window at an offset; some of them, or (`all_progress`) all.

    A bar without a step is no proof: downloads have bars.
    """
    shapes = Shapes(compiled.literals, words=compiled.words, all_progress=all_progress, only=_of_steps(compiled))
    known: dict[int, set[Speaker]] = {}

    def probe(at: int) -> set[Speaker]:
        if at not in known:
            start = logchunks.align(fd, at)
            end = logchunks.align(fd, min(start + PROBE, source.size))
            scanner = source.scanner(compiled, shapes)
            shapes.renew(QUOTA_DULL)   # what other windows showed says nothing about this one

            def read(offset: int, size: int) -> bytes:
                return b"" if not all_progress and _who_steps(scanner) else os.pread(fd, size, offset)

            logchunks.scan_blocks(read, start, end, scanner, None)
            known[at] = _who_steps(scanner)
        return known[at]

    return probe


def _who_steps(scanner: Scanner) -> set[Speaker]:
    return {who for who, (*_, highest) in scanner.part.progress.items() if highest.step is not None}


def _of_steps(compiled: Compiled) -> frozenset[int]:
    """The literals of the rules that read a step: a line without one of them is no step, whatever else it is."""
    return frozenset(index for index, users in enumerate(compiled.users) if any(
        compiled.rules[user].role == "progress" and b"(?P<step>" in compiled.rules[user].pattern for user in users))
