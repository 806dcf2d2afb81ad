"""What the leader's loop does in this turn: wait, close the attempt that is over, or walk the table of rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Turn(Enum):
    """One step of the loop."""

    WAIT = "something must be known, or done, first"
    LOOK = "look in the attempt's log for who ended it"
    CLOSE = "the attempt is over: judge it"
    DECIDE = "walk the table of rows"


@dataclass(frozen=True)
class TurnFacts:
    """Where the run stands between two turns."""

    lives: bool = False            # an attempt is looked after,
    is_fenced: bool = False        # of which nothing is left anywhere
    is_unexplained: bool = False   # a TERM has come, perhaps a person's cancel, and nobody has said yet why
    is_leaving: bool = False       # the run is being handed over, or ended
    has_last_words: bool = False   # srun has brought what the ranks said last
    is_alone: bool = False         # this node is cut off from the others and from Slurm
    was_looked: bool = True        # into its log, for who ended it
    is_asking: bool = False        # Slurm is being asked who did


def judge(standing: TurnFacts) -> Turn:
    """The next step. While a cancel may be under way nothing starts, and no attempt counts as complete: ranks that save
    and exit on Slurm's TERM have not completed.

    A leader that is cut off takes all others for lost, so the one that goes on judges the attempt (seen: the healthy
    node was excluded, the cut one used).
    """
    if not standing.lives:
        return Turn.WAIT if standing.is_unexplained or standing.is_leaving else Turn.DECIDE
    if not standing.is_fenced:
        return Turn.DECIDE
    if not standing.has_last_words or standing.is_unexplained or standing.is_alone or standing.is_asking:
        return Turn.WAIT
    return Turn.CLOSE if standing.was_looked else Turn.LOOK
