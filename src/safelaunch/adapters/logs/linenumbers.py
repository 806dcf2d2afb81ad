"""The numbers of lines that were found without them: what stood before was not read.

Counted when a verdict is shown, for its lines only, and within a time limit: editors jump to line numbers, not bytes.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from safelaunch.adapters import sharedfile
from safelaunch.adapters.logs.logchunks import count_lines
from safelaunch.core.why.findings import Cited
from safelaunch.core.why.verdict import Verdict

BUDGET_S = 0.7
STEP = 8 << 20     # counted between two readings of the clock: 6 ms


def number_verdict(verdict: Verdict) -> Verdict:
    """The verdict with the numbers of its lines, the cause's first, as far as the time allows."""
    until_s = time.monotonic() + BUDGET_S
    known: dict[tuple[str, int], int] = {}
    for cited in (evidence_first(verdict), _all_cited(verdict)):
        wanted: dict[str, set[int]] = {}
        for one in cited:
            if one.line_number is None and (one.file, one.offset) not in known:
                wanted.setdefault(one.file, set()).add(one.offset)
        for file, offsets in wanted.items():
            known.update({(file, offset): number
                          for offset, number in line_numbers(Path(file), offsets, until_s).items()})
    return _numbered(verdict, known) if known else verdict


def line_numbers(path: Path, offsets: Iterable[int], until_s: float = math.inf) -> dict[int, int]:
    """The numbers (from 1) of the lines that hold the offsets of a plain file, as far as there is time."""
    numbers: dict[int, int] = {}
    try:
        fd = sharedfile.open_log(path)
    except OSError:
        return numbers
    try:
        at, number = 0, 1
        for offset in sorted(set(offsets)):
            while at < offset:
                if time.monotonic() > until_s:
                    return numbers
                step = min(offset, at + STEP)
                number, at = number + count_lines(fd, at, step), step
            numbers[offset] = number
        return numbers
    finally:
        os.close(fd)


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
