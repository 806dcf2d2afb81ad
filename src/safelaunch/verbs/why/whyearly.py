"""`why` of a log that ends well, although its losses were no finite numbers up to its end, or its training did not come
far: that is told, and the verdict is less sure.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from safelaunch.base.endings import GOOD_ENDS
from safelaunch.base.io import sharedfile
from safelaunch.base.io.cputime import TookTooLong, within
from safelaunch.nodehealth.slow.nanend import LOSS, NORM, NanEnd, find_nan_end
from safelaunch.run.fold.state import TrainingReach
from safelaunch.run.reach import HEAD_BYTES, LINE_CHARS, TAIL_BYTES, read_reach
from safelaunch.trainlog.steplines import Patterns
from safelaunch.trainlog.steps import AUTO, cut_lines
from safelaunch.verbs.why.whysubject import Subject
from safelaunch.why.findings import Cited
from safelaunch.why.verdict import Verdict

T = TypeVar("T")
MOST_SURE = 0.5    # early stopping is legal, and a log need not say that it was meant
PATTERN_S = 1.0    # of processor time
NAN_SURE = {LOSS: 0.5, NORM: 0.4}    # what was no number may have been meant; an exact 0.0 is only like one
ZERO_SURE = 0.35
MOST_LOGS = 16     # of one training: of more, the ranks' own, the first tell enough
NAN_RULE = {NORM: "numerical.grad_nan"}


def doubt(verdict: Verdict, subject: Subject) -> Verdict:
    """The same, unless losses at the end of its log are no finite numbers, or its last step is far from its total."""
    return _doubt_nan(verdict, subject) or _doubt_early(verdict, subject)


def _doubt_nan(verdict: Verdict, subject: Subject) -> Verdict | None:
    """Of a training that goes on, too: it learns nothing."""
    if verdict.category != "none":
        return None
    plan = subject.run.plan if subject.run is not None else None
    patterns = Patterns() if plan is None else Patterns(plan.step_pattern, loss=plan.loss_pattern)
    for path in subject.paths[:MOST_LOGS]:
        try:
            found = _find_nan(path, patterns)
        except OSError:
            continue
        if found is not None:
            cause = Cited("", "cause", str(path), None, found.line[:LINE_CHARS].strip(), offset=found.start)
            return replace(verdict, category="numerical", summary=found.tell(), action="look",
                           confidence=NAN_SURE.get(found.kind, ZERO_SURE), cause=cause, cited=(cause,),
                           evidence=(cause.text,), symptoms=(), runner_up=None,
                           rule=NAN_RULE.get(found.kind, "numerical.loss_nan"))
    return None


def _find_nan(path: Path, patterns: Patterns) -> NanEnd | None:
    """The NaN at a log's end, with the line where it began: what lasts to the end is odd at each place behind its
    begin, so that is found by halves.
    """
    with os.fdopen(sharedfile.open_log(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size

        def look(back: int) -> NanEnd | None:
            begin = max(0, size - TAIL_BYTES - back * (TAIL_BYTES // 2))   # each piece has half of the next one
            file.seek(begin)
            text = file.read(TAIL_BYTES)
            skipped = text.find(b"\n") + 1 if begin else 0   # the end of a line
            text, begin = text[skipped:], begin + skipped
            cut = cut_lines(text)
            found = _within(lambda: find_nan_end(cut, patterns))
            if found is None:
                return None
            start = found.start if cut is text else max(0, text.find(found.line.encode()))
            return found._replace(start=begin + start)

        last = look(0)
        if last is None or not last.is_whole:
            return last
        low, high = 0, max(0, -(-(size - TAIL_BYTES) // (TAIL_BYTES // 2)))   # the last piece is odd, the first perhaps
        while low < high:
            middle = (low + high) // 2
            found = look(middle)
            low, high = (middle + 1, high) if found is not None and found.is_whole else (low, middle)
        return (look(low) or last)._replace(lines=last.lines)


def _doubt_early(verdict: Verdict, subject: Subject) -> Verdict:
    if verdict.category != "none" or subject.evidence.running or len(subject.paths) != 1:
        return verdict
    if subject.attempt is not None and subject.attempt.ended not in (None, *GOOD_ENDS):
        return verdict   # its end is known: a person wanted the next attempt
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
    return _within(lambda: read_reach(cut, pattern))


def _within(look: Callable[[], T | None]) -> T | None:
    try:
        return within(PATTERN_S, look)
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
