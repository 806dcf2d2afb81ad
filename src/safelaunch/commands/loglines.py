"""Which lines of a training's log are wanted: by rank, host, expression, or as the first error.

Bytes all along: a log holds progress bars, torn UTF-8 and worse, and all of it passes unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from safelaunch.core import nodeset
from safelaunch.core.plan import Plan
from safelaunch.errors import ParseError, UsageError

Keep = Callable[[bytes], bool]

BLOCK_LINES = 400   # of one traceback; a deeper one (recursion) is shown up to here
_PREFIX = re.compile(rb"(\[[^\[\]\s:]{1,255}:\d{1,9}\]:) ?")
# The launcher's report of a failed rank, and what ranks say when another one has gone: echoes, never the first error.
_ECHO = re.compile(rb"ChildFailedError|Connection (?:reset|closed) by peer|torch\.distributed\.elastic|BrokenPipeError")
# Errors without a traceback: CUDA's and NCCL's own lines, the kernel's words for a dead process as bash and glibc
# print them (strsignal(3)), full or lost storage (strerror(3)), slurmstepd's, and loggers' level words.
_SIGN = re.compile(
    rb"CUDA error|CUDA out of memory|NCCL (?:error|failure)|Segmentation fault|Bus error|\bAborted\b|\bKilled\b"
    rb"|No space left on device|Stale file handle|Input/output error|Disk quota exceeded"
    rb"|^(?:slurmstepd|srun): error:|command not found|^\s*(?:FATAL|ERROR)\b|\b(?:FATAL|CRITICAL)\b|terminate called"
)


@dataclass(frozen=True)
class Found:
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
            tests.append(_searcher(re.compile(grep.encode())))
        except re.error as error:
            raise UsageError(f"--grep {grep}: not a regular expression: {error}") from error
    return (lambda line: all(test(line) for test in tests)) if tests else None


def _searcher(regex: re.Pattern[bytes]) -> Keep:
    return lambda line: regex.search(line) is not None


def _prefix_test(plan: Plan, nodes: tuple[str, ...], rank: int | None, hosts: str | None) -> Keep:
    """A test of the "[host:rank]:" before a line. srun's rank is the global one; torchrun prints the local one, so a
    global rank is first looked up in the attempt's nodes.
    """
    try:
        wanted = set(nodeset.expand(hosts)) if hosts is not None else None
    except ParseError as error:
        raise UsageError(f"--host {hosts}: {error.message}") from error
    number = rank
    per_node = plan.launch.nproc_per_node or plan.gpus_per_node or 1
    if plan.launch.by == "torchrun" and rank is not None and nodes and hosts is None:
        if rank >= per_node * len(nodes):
            raise UsageError(f"--rank {rank}: the attempt has the ranks 0 to {per_node * len(nodes) - 1}")
        wanted, number = {nodes[rank // per_node]}, rank % per_node
    names = b"|".join(re.escape(name.encode()) for name in sorted(wanted)) if wanted is not None else rb"[^\[\]\s:]+"
    regex = re.compile(rb"\[(?:" + names + rb"):" + (rb"\d+" if number is None else str(number).encode()) + rb"\]:")
    return lambda line: regex.match(line) is not None


def first_error(lines: Iterable[bytes]) -> Found | None:
    """The error that came first: a Python traceback with its exception, or a line that speaks of one.

    Ranks write at the same time, so each rank's traceback is followed by its prefix. Of those the one that began first
    counts, and an exception that only says that another rank has gone does not.
    """
    blocks: dict[bytes, tuple[int, list[bytes]]] = {}
    for number, line in enumerate(lines, 1):
        match = _PREFIX.match(line)
        prefix, body = (match[1], line[match.end():]) if match else (b"", line)
        block = blocks.get(prefix)
        if body.startswith(b"Traceback (most recent call last)"):
            blocks.setdefault(prefix, (number, []))[1].append(line)
        elif block is not None:
            block[1].append(line)
            if (body.strip() and not body[:1].isspace()) or len(block[1]) >= BLOCK_LINES:
                del blocks[prefix]
                if not _ECHO.search(body):
                    return Found(block[0], tuple(block[1]))
        elif not blocks and _SIGN.search(body) and not _ECHO.search(body):
            return Found(number, (line,))
    return _unfinished(blocks)


def _unfinished(blocks: dict[bytes, tuple[int, list[bytes]]]) -> Found | None:
    """A traceback that the log's end cut off."""
    if not blocks:
        return None
    number, lines = min(blocks.values())
    return Found(number, tuple(lines))
