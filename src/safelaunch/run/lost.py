"""Whether an attempt has gone on from its checkpoint: the first steps in its log, held against the checkpoint's step.

A training that is never told of a checkpoint, or does not load it, starts from the beginning, and nothing fails. Weeks
of GPU time went that way. But a stop without need is worse than a warning. So it is certain only where
- the same counter (trainlog.counters) has counted through the checkpoint's step in an earlier attempt, never anew, and
- it names several growing steps below it now, the first of them below all complete checkpoints there were, and at most
  half as far.
A counter may have been far below the checkpoint that its own attempt wrote. Then it counts something else (epochs,
steps of an epoch, while names tell samples), and nothing can be said. All the rest is a warning. So it is where the
name of the checkpoint tells no step, and the log counts from where the run's first attempt began.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from safelaunch.base.endings import AttemptEnd
from safelaunch.run.fold.state import Attempt
from safelaunch.trainlog.counters import BAR, Counter, has_begun

ENOUGH = 3          # growing steps: a "step 0" of a start, and the one after it, are none of a training yet
ENOUGH_LATE = 2     # ... where the third would come as late as the next checkpoint
FAR = 4             # intervals between checkpoints by which a counter may be ahead of the newest one


class Lost(NamedTuple):
    """An attempt that started at `step`, below the checkpoint that it was to go on from (None: its name tells no step).
    """

    step: int
    resume_step: int | None
    is_sure: bool
    why: str


def judge(attempt: Attempt, earlier: Sequence[Attempt], counters: Sequence[Counter]) -> Lost | None:
    """What speaks for a start below `attempt.resume_step`; None = nothing so far."""
    to_reach = attempt.resume_step
    if to_reach is None:
        return _judge_unnamed(attempt, earlier, counters)
    if to_reach <= 0:
        return None
    counted = [one for one in earlier if one.counter is not None and one.step is not None]
    slack = _interval(attempt) or to_reach // 2
    if any(_counts_something_else(one, slack) for one in counted):
        return None
    forms = {one.counter for one in counted}
    if forms == {""}:
        return None   # each of its epochs counts anew
    low = [one for one in counters if _is_low(one, attempt) and (not forms or one.form in forms)]
    if not low:
        return None
    first = min(low, key=lambda one: one.first)
    proof = next((one for one in counted if one.counter == first.form and _has_passed(one, to_reach, slack)), None)
    lowest = min(attempt.whole_steps or (to_reach,))
    is_far = first.first < lowest and first.first <= to_reach / 2   # a few steps less are no start from the beginning
    is_sure = proof is not None and is_far and not first.form.startswith(BAR)
    return Lost(first.first, to_reach, is_sure, _why(attempt, first, proof, is_sure))


def _judge_unnamed(attempt: Attempt, earlier: Sequence[Attempt], counters: Sequence[Counter]) -> Lost | None:
    """A checkpoint of no step: whether the log counts as that of an attempt which began from nothing, and got further.
    """
    if attempt.resume_path is None:
        return None
    for one in counters:
        before = next((known for known in earlier if known.counter == one.form and known.resume_path is None), None)
        if (before is None or one.form.startswith(BAR) or one.grown < ENOUGH or before.first_step is None
                or one.first > before.first_step or (before.step or 0) <= one.last):
            continue
        return Lost(one.first, None, False, (
            f"attempt {attempt.number} was to go on from {attempt.resume_path}, and its log counts {one.first} … "
            f"{one.last}, as attempt {before.number} did at its start: if these are the same steps, the checkpoint was "
            "not loaded"))
    return None


def _counts_something_else(attempt: Attempt, slack: int) -> bool:
    """Whether its counter stayed far below the checkpoint that it wrote.

    One that it began from is not its own: two attempts in a row that lost it kept each other silent (seed 700293). A
    supervisor may not have seen an attempt's end, or not have read its log then. Of that one the journal may know a
    step of a minute before (seed 30001314).
    """
    written = attempt.checkpoint_step
    is_cut_off = not attempt.is_log_read or attempt.ended in (AttemptEnd.LOST, AttemptEnd.INTERRUPTED)
    if written is None or written <= (attempt.resume_step or 0) or is_cut_off:
        return False
    return (attempt.step or 0) + slack < written


def has_gone_on(attempt: Attempt, earlier: Sequence[Attempt], counters: Sequence[Counter]) -> bool:
    """Whether its log names the checkpoint's step, or a later one, and nothing that speaks against it. Of a checkpoint
    of no step, whether it has counted enough for a verdict.
    """
    to_reach = attempt.resume_step
    if to_reach is None:
        forms = {one.counter for one in earlier}
        return has_begun(counters) or any(one.form in forms and one.grown >= ENOUGH for one in counters)
    return any(one.last >= to_reach and not _is_low(one, attempt) for one in counters)


def _is_low(counter: Counter, attempt: Attempt) -> bool:
    """Whether a counter has run through enough steps below the checkpoint's."""
    interval = _interval(attempt)
    is_slow = interval is not None and counter.grown > 1 and (
        2 * (counter.last - counter.first) / (counter.grown - 1) >= interval)
    return counter.below >= (ENOUGH_LATE if is_slow else ENOUGH)


def _has_passed(attempt: Attempt, step: int, slack: int) -> bool:
    """Whether an attempt has counted up to that step, and stayed near it: 3 epochs are no 3 of its 1500 steps."""
    if attempt.first_step is None or attempt.step is None:
        return False
    return attempt.first_step < step <= attempt.step + slack and attempt.step - step <= max(FAR * slack, step)


def _interval(attempt: Attempt) -> int | None:
    """Steps between two checkpoints, the smallest; None where there were no two."""
    steps = sorted(set(attempt.whole_steps))
    return min((later - before for before, later in pairwise(steps)), default=None)


def _why(attempt: Attempt, counter: Counter, proof: Attempt | None, is_sure: bool) -> str:
    text = (f"attempt {attempt.number} was to go on from step {attempt.resume_step} ({attempt.resume_path}), and its "
            f"log counts {counter.first} … {counter.last}")
    if is_sure and proof is not None:
        return f"{text}, as attempt {proof.number} did on its way to step {proof.step}: the checkpoint was not loaded"
    return f"{text}: if these are the same steps, the checkpoint was not loaded"
