"""Whether a leader has a standby, waits for one, or starts another; and where."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

LOST_S = 30.0   # a standby that is silent for so long is replaced


class StandbyStep(Enum):
    """What a leader does about its standby."""

    NOTHING = "it may still come, or none can run"
    KEEP = "it answers"
    LOST = "it has ended, did not come up, or is silent for too long"
    START = "there is none: start one"


@dataclass(frozen=True)
class StandbyFacts:
    """What a leader knows of its standby. `silent_s`: of the one that was heard last; None = none is connected."""

    silent_s: float | None = None
    has_answered: bool = False
    is_started: bool = False     # its helper step was started,
    has_ended: bool = False      # and is over
    is_known: bool = False       # one was kept before, perhaps by an earlier leader
    is_late: bool = False        # it should have been heard by now
    can_run: bool = True         # helper steps can run in this job
    may_start: bool = True       # the pause after the last one is over, and the folder answers


def judge(facts: StandbyFacts) -> StandbyStep:
    """The next step; asked again after LOST."""
    if facts.silent_s is not None and facts.silent_s < LOST_S:
        return StandbyStep.KEEP if facts.has_answered else StandbyStep.NOTHING
    if facts.is_started and not facts.has_ended and not facts.is_late:
        return StandbyStep.NOTHING
    if facts.is_started or (facts.is_known and facts.is_late):
        return StandbyStep.LOST
    return StandbyStep.START if facts.can_run and facts.may_start else StandbyStep.NOTHING


def choose(
    nodes: Sequence[str], bad: Collection[str], tried: Collection[str], used: Collection[str]
) -> str | None:
    """A node for the standby: a spare first, else the last; another one after a failure; None = none is left."""
    good = [node for node in nodes if node not in bad]
    fresh = [node for node in good if node not in tried] or good
    return next((node for node in fresh if node not in used), fresh[-1] if fresh else None)
