"""What the silence of a guard means, and whether this node is itself cut off."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple

from safelaunch.base.timing import CLOSED_S, LEASE_S, SILENT_S

SILENT_BUSY_S = 60.0   # of silence while the log still grows: ask the node by a helper step
MISSING_S = 30.0       # after the launch, where other nodes' guards have connected; they need seconds


class Silence(Enum):
    """What to do about a guard."""

    NOTHING = "it answers, or may yet"
    TASK_GONE = "its connection has closed: its task has gone with it"
    LOST = "its node is lost"
    PROBE = "ask its node by a helper step"


class Heard(NamedTuple):
    """The signs of a guard that has not reported its task's end."""

    silent_s: float                # since it was heard last
    closed_s: float | None = None  # since its connection has closed; None = it stands
    is_awaited: bool = True        # its connection stands, and it has not told of its task's end
    log_grew_s: float = 0.0        # how long after it was heard last the log has grown
    ping_every_s: float = 1.0
    is_killed: bool = False        # the attempt has been told to end
    can_probe: bool = True         # helper steps can run in this job


def is_in_doubt(silent_s: float, has_closed: bool) -> bool:
    """Whether a guard is to be judged at all: of all others the answer is NOTHING."""
    return has_closed or silent_s >= SILENT_S


def judge(heard: Heard) -> Silence:
    """A silent guard is one witness; the second is a log that stands still, or a node that runs no step."""
    if heard.closed_s is not None and heard.closed_s > CLOSED_S:
        return Silence.TASK_GONE
    if not heard.is_awaited or heard.silent_s < SILENT_S:
        return Silence.NOTHING
    if heard.log_grew_s < heard.ping_every_s + 1.0 or heard.is_killed:
        return Silence.LOST
    return Silence.PROBE if heard.silent_s >= SILENT_BUSY_S and heard.can_probe else Silence.NOTHING


def is_missed(launched_s: float, still_s: float, *, is_killed: bool, can_probe: bool) -> bool:
    """Whether to ask a node by a helper step. The attempt was launched `launched_s` ago. Since then guards of other
    nodes have connected, and none of that node. Its log has stood still for `still_s`. A node can die between srun's
    start and its guard's first word: srun itself then waits until SlurmdTimeout is over (drill, Slurm 22.05).
    """
    return launched_s >= MISSING_S and still_s >= SILENT_S and can_probe and not is_killed


def is_lost_by_probe(silent_s: float, is_ok: bool | None) -> bool:
    """Whether a helper step that failed (`is_ok`; None = it was never tried) is the second witness against a node."""
    return is_ok is False and silent_s > SILENT_S


def is_missing_by_probe(*, is_same_attempt: bool, has_guard: bool, has_given_up: bool) -> bool:
    """Whether a node of which no guard has connected is lost: Slurm has given it up (`has_given_up`), by the words of a
    helper step. One that runs steps may go without a guard for good. Meanwhile its guard may have come, or the attempt
    may be another one.
    """
    return is_same_attempt and has_given_up and not has_guard


def must_end_ranks(*, leads: bool, had_eligible: bool, standby_silent_s: float) -> bool:
    """Whether a leader that cannot start, because its folder does not answer, ends the ranks whose guards it serves.
    Another may lead by now, and waits no longer than a lease.
    """
    return not leads and had_eligible and standby_silent_s > LEASE_S


def may_be_alone(
    host: str, nodes: Sequence[str], lost: Collection[str], standby_silent_s: float | None, is_local: bool
) -> bool:
    """Whether all other nodes of the attempt are lost, and the standby (None = there is none) is silent. Then it may
    be this node that is cut off, and Slurm's controller is the third witness. Spares run nothing that could be heard.
    """
    others = [node for node in nodes if node != host]
    is_heard = standby_silent_s is not None and standby_silent_s < SILENT_S
    return not is_local and bool(others) and all(node in lost for node in others) and not is_heard
