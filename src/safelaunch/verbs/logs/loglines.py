"""Which lines of a training's log are wanted: by rank, host, expression, or as what `why` cites.

Bytes all along: a log holds progress bars, torn UTF-8 and worse, and all of it passes unchanged.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from safelaunch.base.io import sharedfile
from safelaunch.errors import ParseError, UsageError
from safelaunch.launch.launchers import LAUNCHERS
from safelaunch.run.plan import Plan
from safelaunch.slurm import nodeset
from safelaunch.verbs.logs.rankfold import PREFIX

Keep = Callable[[bytes], bool]

BLOCK_LINES = 4000       # above an exception; one whose traceback begins further above is shown alone
BLOCK_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20


class FirstError(NamedTuple):
    """The first error: its lines, and the number of the first of them (1-based)."""

    line_number: int
    lines: tuple[bytes, ...]


def make_filter(
    plan: Plan, nodes: tuple[str, ...], rank: int | None, hosts: str | None, grep: str | None,
) -> Keep | None:
    """Whether a line is wanted; None = all are. `nodes` are the attempt's, in Slurm's order; () where it is unknown."""
    tests: list[Keep] = []
    if rank is not None or hosts is not None:
        tests.append(_prefix_test(plan, nodes, rank, hosts))
    if grep is not None:
        try:
            regex = re.compile(os.fsencode(grep))
            tests.append(lambda line: regex.search(line) is not None)
        except re.error as error:
            raise UsageError(f"--grep {grep}: not a regular expression: {error}") from error
    return (lambda line: all(test(line) for test in tests)) if tests else None


def _prefix_test(plan: Plan, nodes: tuple[str, ...], rank: int | None, hosts: str | None) -> Keep:
    """A test of the "[host:rank]:" before a line. Of local ranks, the attempt's nodes tell the global one."""
    try:
        wanted = set(nodeset.expand(hosts)) if hosts is not None else None
    except ParseError as error:
        raise UsageError(f"--host {hosts}: {error.message}") from error
    number = rank
    per_node = plan.launch.nproc_per_node or plan.gpus_per_node or 1
    if LAUNCHERS[plan.launch.by].starts_ranks and rank is not None and nodes and hosts is None:
        if rank >= per_node * len(nodes):
            raise UsageError(f"--rank {rank}: the attempt has the ranks 0 to {per_node * len(nodes) - 1}")
        wanted, number = {nodes[rank // per_node]}, rank % per_node
    names = rb"[^\[\]\s:]+" if wanted is None else b"|".join(re.escape(os.fsencode(name)) for name in sorted(wanted))
    places = rb"(?:\d+|node)" if number is None else str(number).encode()
    regex = re.compile(rb"\[(?:" + names + rb"):" + places + rb"\]:")
    return lambda line: regex.match(line) is not None


def read_cited(path: Path, offset: int, is_block: bool) -> FirstError:
    """The raw lines of what `why` cites: the line at that byte and, of a traceback, its rank's lines above it."""
    start = max(0, offset - BLOCK_BYTES) if is_block else offset
    with os.fdopen(sharedfile.open_log(path), "rb") as file:
        file.seek(start)
        before = file.read(offset - start).splitlines(keepends=True)
        last = file.readline(CHUNK_BYTES)
        lines = deque([last])
        skipped = 0
        prefix = _prefix(last)
        for back, line in enumerate(reversed(before[-BLOCK_LINES:] if is_block else ()), 1):
            if _prefix(line) != prefix:
                continue
            lines.appendleft(line)
            skipped = back
            if _body(line).startswith(b"Traceback (most recent call last)"):
                break
        else:   # it began too far above
            lines, skipped = deque([last]), 0
        file.seek(0)
        number = _count(file, offset) - sum(line.endswith(b"\n") for line in before[len(before) - skipped:]) + 1
    return FirstError(number, tuple(lines))


def _prefix(line: bytes) -> bytes:
    match = PREFIX.match(line)
    return match[1] if match else b""


def _body(line: bytes) -> bytes:
    match = PREFIX.match(line)
    return line[match.end():] if match else line


def _count(file: BinaryIO, size: int) -> int:
    """Line ends in the first `size` bytes."""
    count = 0
    while size > 0 and (chunk := file.read(min(size, CHUNK_BYTES))):
        count += chunk.count(b"\n")
        size -= len(chunk)
    return count
