"""Which checkpoints an attempt leaves out whose loss was no finite number: those that it may have saved since."""

from __future__ import annotations

from typing import NamedTuple


class SavedAt(NamedTuple):
    """A checkpoint as it was then; one that is written again has another time. The file server's, so that nothing is
    compared with a clock. 0 = it could not be read.
    """

    path: str
    step: int | None
    t: float


class NanCut(NamedTuple):
    """The loss of an attempt was no finite number from `step` on. `upto`: the last step whose checkpoint may be used.

    `taken`: the checkpoints behind it; `is_left`: a complete one before it was there.
    """

    attempt: int
    step: int
    upto: int
    taken: tuple[SavedAt, ...] = ()
    is_left: bool = True


def last_good_step(step: int, before: int | None, resume_step: int | None, *, is_again: bool) -> int:
    """The last step whose checkpoint may be used. `before`: the last one with a finite loss; None = none was read of
    this attempt. `is_again`: an attempt before it met the same at the same step.

    Trainings log each tenth step or so, and of many lines a second only some are read. So what was saved behind the
    last finite loss may hold it already. When it comes back at the same step, or at once, the checkpoint that this
    attempt has loaded is not trusted, either.
    """
    start = 0 if resume_step is None else resume_step - 1
    if before is None:
        return min(start, step - 1)
    upto = min(before, step - 1)
    return min(upto, start) if is_again and resume_step is not None else upto
