"""Whether an attempt failed by Slurm's fault: then it counts not against the training, and costs no budget."""

from __future__ import annotations

from typing import NamedTuple

from safelaunch.base.endings import AttemptEnd
from safelaunch.run.fold.state import State

MOST_REFUSALS = 10   # by Slurm, in a row: 40 min
FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 300.0


class Said(NamedTuple):
    """What srun, or Slurm, said of an attempt that failed."""

    has_exits: bool = False        # some task has ended: it did start
    no_step: bool = False          # srun could start no task
    is_unread: bool = False        # Slurm ended the step with an unknown message
    no_overlap: bool = False       # srun refuses the --overlap of a relaunch: it is launched again without


def judge(how: AttemptEnd, said: Said, refusals: int, now: float) -> tuple[AttemptEnd, float | None]:
    """How the attempt ended, and before when (epoch s) nothing is launched; `refusals`: by Slurm, in a row."""
    if how != AttemptEnd.FAILED:
        return how, None
    is_refused = said.is_unread or (said.no_step and not said.has_exits)
    if is_refused and refusals < MOST_REFUSALS:
        return AttemptEnd.INTERRUPTED, now + min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** refusals)
    return (AttemptEnd.INTERRUPTED if said.no_overlap and not said.has_exits else how), None


def in_a_row(state: State) -> int:
    """How many attempts before the newest, one after the other, Slurm has refused."""
    count = 0
    for attempt in reversed(state.attempts[:-1]):
        if attempt.not_before is None:
            break
        count += 1
    return count
