"""What can be done next: the answers of the two tables (decide.turn.rows)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from safelaunch.decide.facts.seen import Observation
from safelaunch.run.fold.state import Resize, State
from safelaunch.run.plan import Plan

# How long ranks have between TERM and KILL once their attempt has failed. Survivors of a dead collective have nothing
# left to save, and Slurm's own KillWait (30 s) is far too long for a restart.
FAILED_GRACE_S = 5.0


@dataclass(frozen=True)
class Launch:
    """Start the next attempt on these nodes."""

    nodes: tuple[str, ...]
    why: str
    resize: Resize | None = None   # no training: before_resize, for this


@dataclass(frozen=True)
class AskNodes:
    """Ask Slurm when it could give the run so many more nodes; `but`: its own, and those that it must not use."""

    count: int
    but: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class CheckNodes:
    """Check these nodes before the next attempt uses them, within `limit_s` (None: checks.timeout)."""

    nodes: tuple[str, ...]
    why: str
    limit_s: float | None = None
    after: int | None = None   # the failed attempt; None: before a job's first one
    first: str = ""            # of the next attempt's nodes: its ranks meet there


@dataclass(frozen=True)
class BenchNodes:
    """Measure these nodes before the next attempt, and keep out of it who is slow."""

    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class AskToEnd:
    """Signal the ranks that handle `signal`; decide.facts.patience says how long they have."""

    signal: str
    why: str


@dataclass(frozen=True)
class Kill:
    """End every process of the attempt: TERM, and KILL after `grace_s`."""

    grace_s: float
    why: str


@dataclass(frozen=True)
class Fence:
    """Make sure that nothing of the attempt is left, on silent nodes by waiting for their lease."""

    why: str


@dataclass(frozen=True)
class HandOver:
    """Leave the run to the successor job, which must not use `exclude`. `held`: nor may it start before it is released.
    `behind`: nor before these jobs of other runs have ended. `pause_s`: nor before that has passed.
    """

    exclude: tuple[str, ...]
    why: str
    held: bool = False
    behind: tuple[str, ...] = ()
    pause_s: float = 0.0


class Hold(NamedTuple):
    """Put the run on hold, and tell people: only one of them knows whether it is to go on."""

    why: str


@dataclass(frozen=True)
class Finish:
    """End the run for good."""

    how: str
    exit_code: int
    why: str


@dataclass(frozen=True)
class Preserve:
    """Keep the nodes for people until `until` (epoch s), then give up."""

    until: float
    why: str


@dataclass(frozen=True)
class Wait:
    """Nothing to do before `until` (epoch s)."""

    until: float
    why: str


Action = (Launch | AskNodes | CheckNodes | BenchNodes | AskToEnd | Kill | Fence | HandOver | Hold | Finish | Preserve
          | Wait)


class Decision(NamedTuple):
    """The row that spoke and what it wants; `action` None = go on watching."""

    row: str
    action: Action | None


Row = Callable[[State, Observation, Plan], Action | None]
