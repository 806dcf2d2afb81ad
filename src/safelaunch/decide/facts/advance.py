"""What counts as progress where no checkpoint tells its step: the log's own steps.

Progress is what a restart keeps. So a complete checkpoint that is further than all before counts always
(`checkpoint_events` of the supervisor), and so does an attempt that begins further on than every one before it: that
proves a checkpoint, wherever it lies. A step beyond all attempts before counts where no checkpoint folder is known. In
a known folder in which nothing is ever saved a higher step is lost at the next end, and counts for nothing; beside a
checkpoint of no step that was written meanwhile it counts.

Steps are compared only where one counter counts the whole training. Where each epoch begins anew, epochs are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.plan import Plan

NEAR = 5            # steps: a bar's first figure differs by some, and so do ranks
NEAR_SHARE = 50     # ... or this part of the highest step before
SKEW_S = 5.0        # by which the file server's clock may be behind


def find(state: State, plan: Plan, saved_t: float = 0.0) -> str | None:
    """Why the attempt that has ended last is progress; None = it is none, or a checkpoint tells. `saved_t`: when the
    newest complete checkpoint was written, where its name tells no step.
    """
    last = state.attempt
    if last is None or last.ended is None or last.resize is not None or state.best_step is not None:
        return None
    earlier = trainings(state.attempts[:-1])
    if _begins_further(last, earlier):
        return f"it began at step {last.first_step} by itself, further on than all before"
    higher = _tell_higher(last, earlier)
    if plan.resume.dir is not None:
        is_written = saved_t + SKEW_S > last.started_t
        return f"a checkpoint was written{f', and {higher}' if higher else ''}" if is_written and (
            higher or not has_steps(state)) else None
    # The same time gets it about as far again: of two such attempts one is always ahead.
    return None if last.has_had_its_time and begins_again(last, earlier) else higher


def trainings(attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """Those that did not run before_resize."""
    return tuple(one for one in attempts if one.resize is None)


def has_steps(state: State) -> bool:
    """Whether the log of any attempt has named a step or an epoch."""
    return any(one.step is not None or one.epoch is not None for one in state.attempts)


def began_at(attempt: Attempt, earlier: Sequence[Attempt]) -> int | None:
    """The first step of an attempt that was told of no checkpoint, and did not begin where the run had begun; None = it
    did, or nobody knows.
    """
    if attempt.resume_step is not None or attempt.resume_path is not None:
        return None
    first, lowest = attempt.first_step, _lowest(attempt, earlier)
    if first is None or lowest is None or first - lowest <= _slack(earlier):
        return None
    return first


def begins_again(attempt: Attempt, earlier: Sequence[Attempt]) -> bool:
    """Whether an attempt began where the run had begun, by the first steps of both."""
    first, lowest = attempt.first_step, _lowest(attempt, earlier)
    return first is not None and lowest is not None and first - lowest <= NEAR


def _lowest(attempt: Attempt, earlier: Sequence[Attempt]) -> int | None:
    if not _is_whole((*earlier, attempt)):
        return None
    return min((one.first_step for one in earlier if one.first_step is not None), default=None)


def _begins_further(last: Attempt, earlier: Sequence[Attempt]) -> bool:
    firsts = [one.first_step for one in earlier if one.first_step is not None]
    if last.first_step is None or not firsts or not _is_whole((*earlier, last)):
        return False
    return last.first_step - max(firsts) > _slack(earlier)


def _slack(earlier: Sequence[Attempt]) -> int:
    return max(NEAR, max((one.step or 0 for one in earlier), default=0) // NEAR_SHARE)


def _is_whole(attempts: Sequence[Attempt]) -> bool:
    """Whether steps count the whole training, as far as the logs show: no counter has begun anew."""
    return all(one.counter != "" for one in attempts)


def _tell_higher(last: Attempt, earlier: Sequence[Attempt]) -> str | None:
    """By what an attempt came further than all before it; None = it did not, or that cannot be compared."""
    marks = [(one.epoch, one.step or 0) for one in earlier if one.epoch is not None]
    if last.epoch is not None and len(marks) == sum(one.step is not None or one.epoch is not None for one in earlier):
        is_higher = (last.epoch, last.step or 0) > max(marks, default=(-1.0, 0))
        return f"it came to epoch {last.epoch:g}, further than all before" if is_higher else None
    steps = [one.step for one in earlier if one.step is not None]
    if last.step is None or not _is_whole((*earlier, last)) or last.step <= max(steps, default=-1):
        return None
    return f"it came to step {last.step}, further than all before"
