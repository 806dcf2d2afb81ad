"""`why` of a log that ends well, although its training did not come far: that is told, and the verdict is less sure."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from safelaunch.adapters import sharedfile
from safelaunch.adapters.cputime import TookTooLong, within
from safelaunch.core.progress.reach import HEAD_BYTES, LINE_CHARS, TAIL_BYTES, read_reach
from safelaunch.core.progress.steps import AUTO, cut_lines
from safelaunch.core.state import TrainingReach
from safelaunch.core.why.findings import Cited
from safelaunch.core.why.verdict import Verdict
from safelaunch.views.whysubject import Subject

MOST_SURE = 0.5    # early stopping is legal, and a log need not say that it was meant
PATTERN_S = 1.0    # of processor time


def doubt(verdict: Verdict, subject: Subject) -> Verdict:
    """The same, unless its log names a total that its last step is far from."""
    if verdict.category != "none" or subject.evidence.running or len(subject.paths) != 1:
        return verdict
    try:
        begin, head, tail = _read(subject.paths[0])
    except OSError:
        return verdict
    reach = _reach_of(b"\n".join(filter(None, (head, tail))),
                      subject.run.plan.step_pattern if subject.run is not None else AUTO)
    if reach is None or not reach.is_early:
        return verdict
    cited = []
    last = tail.rstrip().rpartition(b"\n")[2].decode(errors="replace").strip()
    for line in dict.fromkeys((*reach.lines, *filter(None, (last[:LINE_CHARS],)))):
        at, text = (begin, tail) if line.encode() in tail else (0, head)
        if (offset := text.rfind(line.encode())) >= 0:
            cited.append(Cited("", "context", str(subject.paths[0]), None, line, offset=at + offset))
    said = f"no sign of a failure, but its last {reach.unit} is {reach.share}"
    return replace(verdict, summary=f"{said}: it may have stopped early on purpose, or nobody wanted that end",
                   confidence=min(MOST_SURE, verdict.confidence), cited=tuple(cited), evidence=reach.lines)


def _reach_of(text: bytes, pattern: str) -> TrainingReach | None:
    cut = cut_lines(text)
    try:
        return within(PATTERN_S, lambda: read_reach(cut, pattern))
    except TookTooLong:
        return None


def _read(path: Path) -> tuple[int, bytes, bytes]:
    """Where the log's end begins, what stands before it, and the end."""
    with os.fdopen(sharedfile.open_log(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(0, size - TAIL_BYTES)
        head = file.read(min(HEAD_BYTES, begin))
        file.seek(begin)
        return begin, head, file.read(TAIL_BYTES)
