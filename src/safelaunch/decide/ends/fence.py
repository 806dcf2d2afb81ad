"""Whether something of an ended attempt may be left on a node, and what the fence does to find out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from safelaunch.base.timing import CLOSED_S, OLD_HOST_S

STUCK_S = 60.0     # ranks that a KILL does not end sleep in D state; Slurm gives them 60 s too
MAX_FAILED = 2     # helper steps that could not run on a node, before it counts as lost


class Fencing(Enum):
    """What is to be done about one node."""

    CLEAN = "nothing of the attempt is left there"
    LEASE = "wait until its guard's lease has run out"
    WAIT = "its guards are still at work, or about to call"
    FROZEN = "its ranks sleep in a run folder that does not answer"
    STUCK = "its ranks do not end: the node is lost"
    LATER = "nobody answered for it a moment ago: ask again later"
    SWEEP = "a helper step ends what carries the attempt's mark"


class Node(NamedTuple):
    """What is known of one node of an attempt that has been told to end, or has ended."""

    tasks: int                     # that run on it
    guards: int = 0                # that have ever called
    gone: int = 0                  # of these, which have said that nothing of their task is left
    connected: bool = False        # one that is not gone holds its connection
    is_lost: bool = False          # dead, silent, or left to its lease for another reason
    is_frozen: bool = False        # the run folder does not answer
    waited_s: float = 0.0          # since the fence has begun to wait for its guards
    srun_ended: bool = False       # and no other supervisor's guards are on their way here
    is_old_host: bool = False      # of the earlier supervisor: its guards are on their way to a new endpoint
    may_ask: bool = True           # the pause after a sweep without an answer is over
    has_helpers: bool = True       # helper steps can run in this job


def judge(node: Node) -> Fencing:
    """What to do about a node now."""
    if node.guards >= node.tasks and node.gone == node.guards:
        return Fencing.CLEAN
    if node.is_lost:
        return Fencing.LEASE
    if node.connected:
        if node.is_frozen:
            return Fencing.FROZEN
        return Fencing.STUCK if node.waited_s > STUCK_S else Fencing.WAIT
    is_closed = node.waited_s > (OLD_HOST_S if node.is_old_host else CLOSED_S)
    if not (node.srun_ended or is_closed):
        return Fencing.WAIT
    if not node.may_ask:
        return Fencing.LATER
    return Fencing.SWEEP if node.has_helpers else Fencing.LEASE


class ScriptTask(NamedTuple):
    """What is known of one task of a script's attempt whose guard has called."""

    step: int           # 0: the script itself; else which of its sruns has started it
    gone: bool          # its guard has said that nothing of it is left
    tasks: int | None   # of its step; None: not told


GUARDED = "guarded"   # what the wrapper of srun notes of an srun whose tasks have guards (node/srun.sh)


def has_script_gone(sruns: Sequence[str] | None, told: Iterable[ScriptTask]) -> bool:
    """Whether a script, and every task of each srun that it has called, have said that nothing of them is left.

    `sruns`: a word for each that the wrapper has seen; None = unknown. Slurm tells of others. An srun that has
    made no step may have one on its way.
    """
    if sruns is None or set(sruns) - {GUARDED}:
        return False
    steps: dict[int, list[ScriptTask]] = {}
    for task in told:
        steps.setdefault(task.step, []).append(task)
    own = steps.pop(0, [])
    whole = [step for step in steps.values() if all(task.tasks == len(step) for task in step)]
    is_told = bool(own) and len(whole) == len(steps) == len(sruns)
    return is_told and all(task.gone for step in (own, *whole) for task in step)


class Swept(Enum):
    """What the answer of a helper step means for its node."""

    CLEAN = "nothing of the attempt is left there"
    AGAIN = "nobody answered for the node: ask again later"
    RETRY = "it could not run on the node: ask again at once"
    LEASE = "no helper can run: wait until its guard's lease has run out"
    STUCK = "processes of the attempt cannot be ended: the node is lost"
    DEAD = "it could not run on the node, which is lost"


class StepAnswer(NamedTuple):
    """A helper step's answer; `left`: whether some process does not end, None = it did not run on the node."""

    left: bool | None = None
    is_frozen: bool = False        # the run folder does not answer
    is_unknown: bool = False       # Slurm has not said whether it ran, though srun has ended
    is_refused: bool = False       # srun cannot run helper steps, or no step in a job that ends
    is_aborted: bool = False       # srun gave the node up: 11 s of asking, and slurmctld was heard (measured)
    is_late: bool = False          # srun has not ended within its deadline
    failed: int = 0                # helper steps that could not run on this node before


def judge_sweep(answer: StepAnswer) -> Swept:
    """What follows from a helper step. Only an answer about the node itself counts against it."""
    if answer.left is not None:
        if not answer.left:
            return Swept.CLEAN
        return Swept.AGAIN if answer.is_frozen else Swept.STUCK
    if answer.is_unknown and not answer.is_late and not answer.is_aborted:
        return Swept.AGAIN
    if answer.is_refused:
        return Swept.LEASE
    is_dead = answer.is_aborted or answer.is_late or answer.failed + 1 >= MAX_FAILED
    return Swept.DEAD if is_dead else Swept.RETRY


def is_lease_over(now_s: float, heard_s: float, record_s: float | None, lease_s: float, margin_s: float) -> bool:
    """Whether a silent node's guard has ended its ranks. The lease counts from the last message that the guard may have
    heard (`heard_s`). From its end on, and from the record's move on (`record_s`; None = not yet), it looks each
    second.
    """
    return record_s is not None and now_s > max(heard_s + lease_s, record_s) + margin_s
