"""What the leader's loop does in this turn: wait, close the attempt that is over, or walk the table of rows."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Turn(Enum):
    """One step of the loop."""

    WAIT = "something must be known, or done, first"
    READ_LOG = "read in the attempt's log who ended it"
    CLOSE = "the attempt is over: judge it"
    DECIDE = "walk the table of rows"


class StepDown(NamedTuple):
    """What a leader does that has been superseded."""

    ends_attempt: bool   # the new leader has done so, and waits for none of this one's guards
    stands_by: bool      # it stays, as the new leader's standby


def step_down(by: str | None, host: str, *, wants_standby: bool) -> StepDown:
    """`by`: the host of the new leader; None = the folder is another run's."""
    return StepDown(by not in (None, host), wants_standby and by is not None)


class TurnFacts(NamedTuple):
    """The state of the run between two turns."""

    lives: bool = False            # an attempt is supervised,
    is_fenced: bool = False        # nothing of it is left on any node
    is_unexplained: bool = False   # a TERM has come, perhaps a person's cancel, and nobody has said yet why
    is_leaving: bool = False       # the run is being handed over, or ended
    has_last_lines: bool = False   # srun has brought the last lines of the ranks
    is_alone: bool = False         # this node is cut off from the others and from Slurm
    is_log_read: bool = True        # for who ended it
    is_asking: bool = False        # Slurm is being asked who did


def judge(facts: TurnFacts) -> Turn:
    """The next step. While a cancel may be under way nothing starts, and no attempt counts as complete: ranks that save
    and exit on Slurm's TERM have not completed.

    A leader that is cut off takes all others for lost. So the one that goes on judges the attempt (seen: the healthy
    node was excluded, the cut one used).
    """
    if not facts.lives:
        return Turn.WAIT if facts.is_unexplained or facts.is_leaving else Turn.DECIDE
    if not facts.is_fenced:
        return Turn.DECIDE
    if not facts.has_last_lines or facts.is_unexplained or facts.is_alone or facts.is_asking:
        return Turn.WAIT
    return Turn.CLOSE if facts.is_log_read else Turn.READ_LOG
