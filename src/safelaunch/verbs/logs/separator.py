"""The line between the logs of two attempts: how the last one ended, and how the next goes on."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.base.endings import AttemptEnd
from safelaunch.base.plaintext import clean
from safelaunch.base.secretmask import mask
from safelaunch.run.fold.state import Attempt
from safelaunch.slurm import nodefold

START, END = "--- attempt ", " ---"   # what a program finds such a line by; docs/verbs.md promises both
MOST_WHY_CHARS = 160
_ENDED: dict[str, str] = {AttemptEnd.COMPLETED: "completed", AttemptEnd.LINKED: "ended",
                          AttemptEnd.FAILED: "failed",
                          AttemptEnd.LOST: "was lost with a node", AttemptEnd.INTERRUPTED: "was interrupted",
                          AttemptEnd.STOPPED: "was stopped", AttemptEnd.CONVERTED: "converted the checkpoint",
                          AttemptEnd.UNCONVERTED: "did not convert the checkpoint"}


def separator(before: Attempt | None, number: int, after: Attempt | None, span: Callable[[float], str]) -> str:
    """--- attempt 1 failed after 3 min at step 59: KeyError: 'lable' · attempt 2 on n[0,2] from step 40 ---

    None: the journal does not know the attempt.
    """
    parts = [*([f"attempt {before.number} {_end(before, span)}"] if before else []), f"attempt {number}{_begin(after)}"]
    return f"--- {' · '.join(parts)}{END}"


def further_lines(number: int) -> str:
    """Before lines of an attempt that come when a later one has been shown."""
    return f"{START}{number}, further lines{END}"


def _end(attempt: Attempt, span: Callable[[float], str]) -> str:
    if attempt.ended is None or attempt.ended_t is None:
        return "has no end in the journal"
    step = f" at step {attempt.step}" if attempt.step is not None else ""
    told = clean(mask(attempt.summary or ""))
    cut = f"{told[:MOST_WHY_CHARS]}…" if len(told) > MOST_WHY_CHARS else told
    return (f"{_ENDED.get(attempt.ended, clean(attempt.ended))} after {span(attempt.ended_t - attempt.started_t)}{step}"
            f"{f': {cut}' if cut else ''}")


def _begin(attempt: Attempt | None) -> str:
    if attempt is None:
        return ""
    at = f" from step {attempt.resume_step}" if attempt.resume_step is not None else ""
    if attempt.resize is not None:
        return clean(f", before_resize, on {nodefold.fold(attempt.nodes)}{at}, for {attempt.resize.to_nodes} nodes")
    lost = "" if attempt.lost is None else f", {'not' if attempt.lost_surely else 'perhaps not'} loaded"
    return clean(f" on {nodefold.fold(attempt.nodes)}{at}{lost}")
