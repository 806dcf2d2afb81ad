"""How far the training of an attempt had come when it ended.

Behind the last step nothing was left to train: the checkpoint is not to blame for a failure there, and one restart is
enough. What comes there are evaluations, uploads, and crashes at the exit.
"""

from __future__ import annotations

from safelaunch.base.endings import AttemptEnd
from safelaunch.base.secretmask import mask
from safelaunch.run.fold.state import Attempt, State, TrainingReach
from safelaunch.why.categories import BAD_NODE


def behind_training(state: State) -> tuple[Attempt, ...]:
    """The attempts that ended behind the last step: by their own logs, or since they began there and made none."""
    found: list[Attempt] = []
    for number, one in enumerate(state.attempts):
        before = state.attempts[number - 1] if number else None
        if one.resize is not None:
            continue
        if _has_trained_all(one) or (found and not has_counted(one) and _begins_at_end(one, found[-1])):
            found.append(one)
        elif before is not None and fails_as_behind(one, before) and _is_at_last_epoch(before):
            found += [before, one]
    return tuple(found)


def has_counted(attempt: Attempt) -> bool:
    """Whether it has made steps, by its log: of steps, or of epochs where that names nothing else."""
    return attempt.made_steps or (attempt.reach is not None and attempt.reach.unit == "epoch")


def fails_as_behind(attempt: Attempt, before: Attempt) -> bool:
    """Whether it made no step, and failed as another one had failed right behind the save of its checkpoint.

    That one had not loaded this checkpoint: so loading is not the cause.
    """
    is_same = bool(attempt.fingerprint) and (attempt.fingerprint, attempt.category) == (
        before.fingerprint, before.category)
    saved = before.checkpoint_step
    is_behind_save = saved is not None and saved == attempt.resume_step and saved != before.resume_step and (
        before.step is None or before.step == saved or (before.reach is not None and before.reach.unit == "epoch"))
    return is_same and is_behind_save and attempt.has_failed and before.has_failed and not has_counted(attempt)


def _has_trained_all(attempt: Attempt) -> bool:
    reach = attempt.reach
    if reach is None or reach.is_all:
        return reach is not None
    # The final checkpoint, though the log does not name the last step. Checkpoints may count epochs, or steps.
    saved = attempt.checkpoint_step or 0
    if reach.total is None or reach.unit != "epoch":
        return reach.total is not None and saved >= reach.total
    return saved == reach.step == reach.total


def _is_at_last_epoch(attempt: Attempt) -> bool:
    """By its log, counted from one or from zero."""
    reach = attempt.reach
    return reach is not None and reach.unit == "epoch" and reach.total is not None and (
        (reach.step or 0) >= reach.total - 1)


def _begins_at_end(attempt: Attempt, before: Attempt) -> bool:
    """Whether there was no step left for it. A script that loads by itself is known by the same failure."""
    if attempt.resume_step is None:
        return attempt.step is None and bool(attempt.fingerprint) and attempt.fingerprint == before.fingerprint
    if before.reach is not None and before.reach.unit == "step":
        last = before.reach.total or before.reach.step
        return last is not None and attempt.resume_step >= last - 1   # counted from zero the last of 400 is 399
    end = before.checkpoint_step if before.checkpoint_step is not None else before.resume_step
    return end is not None and attempt.resume_step >= end


def has_failed_again(state: State, last: Attempt) -> bool:
    """Whether it is the second failure behind the last step that is not a node's."""
    failed = [one for one in behind_training(state) if one.ended == AttemptEnd.FAILED and one.category not in BAD_NODE]
    return len(failed) > 1 and failed[-1] is last


def tell_done(state: State, last: Attempt) -> str:
    """What is trained, and where it lies."""
    reach = next((one.reach for one in behind_training(state) if one.reach is not None), None)
    count = (reach.total or reach.step) if reach is not None else None
    steps = f"all {count} {reach.unit}s" if reach is not None and count is not None else "as its log says"
    if last.resume_path is not None and last.resume_step == state.best_step:
        return f"{steps}; checkpoint {last.resume_path}"
    return steps if state.best_step is None else f"{steps}; checkpoint of step {state.best_step}"


def reach_of(reach: TrainingReach) -> dict[str, object]:
    """The field `reach` of the event `attempt_ended`."""
    return {"unit": reach.unit, "step": reach.step, "total": reach.total, "all": reach.is_all, "early": reach.is_early,
            "lines": [mask(line) for line in reach.lines]}


def tell_behind(reach: TrainingReach) -> str:
    """Of a failure, that nothing was left to train."""
    count = reach.total or reach.step
    return f"behind the last {reach.unit}" + (f": {count} of {count} are done" if count is not None else "")
