"""Whether what the looks at a silent training show is proof of a hang, or something that takes its time.

Stacks alone are not: an evaluation that nobody announced stands at `loss.item()` for nine of ten looks, and during a
rank's checkpoint all others stand in a barrier. What speaks for a healthy training here: a rank whose stack moves, that
reads or writes, that touches new memory, whose compiler or data loaders compute. What is left without any sign of life
is proof at once where all sleep, where ranks wait for one that is elsewhere, or where a process cannot go on; ranks
that spin (a GPU that is waited for) must be still for SPIN_S, over all looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from safelaunch.core import activity, progress
from safelaunch.core.hangscene import HangVerdict, names_of
from safelaunch.core.ranks import Life, NodeReport, Rank
from safelaunch.core.stacks import MOVING, Group, normalise, split_frame

SPIN_S = 300.0             # half of NCCL's own patience
MOVED_BYTES = 1 << 20      # a rank's log lines and heartbeats are less, a checkpoint's piece is more
FAULTS = 1000              # 4 MB of memory touched anew
BELOW_S = 0.5              # of CPU: a compiler, a tokeniser; idle data loaders take a hundredth of it
_NOT_A_HANG = "no second witness of a hang"
# Functions on the way to what takes longer than a step; by name, as the program's own files are anybody's.
_PHASES = (
    (progress.CHECKPOINT, re.compile(r"(?:^|[._])save(?:_|$)|save_(?:checkpoint|model|pretrained|state)|save_to_disk")),
    (progress.EVALUATION, re.compile(r"(?:^|[._])(?:evaluate|evaluation|validate|validation|eval|estimate_loss)"
                                     r"(?:_(?:step|batch|loop|epoch|model|loss|all|and_\w+))?$|^(?:run|do)_(?:eval|valid)")),
)
_SURE_KINDS = ("storage", "deadlock", "data_loading")
_SURE = {"asleep", "gpu_pattern", "silent_nodes", "missing_ranks"}
_BY_KIND = {activity.COMPILE: progress.COMPILE, activity.DATA: progress.DATA}


class Weighed(NamedTuple):
    """What the looks so far say. `phase`: what the stacks show the training at, where that takes longer than a step;
    `is_sure` False = proof only after SPIN_S of silence.
    """

    is_proof: bool
    why: str
    phase: str = ""
    is_sure: bool = True


class Look(NamedTuple):
    """One look at all nodes, and its verdict."""

    reports: Sequence[NodeReport]
    groups: Sequence[Group]
    found: HangVerdict


def weigh(looks: Sequence[Look]) -> Weighed:
    """What all looks at one silence say; the newest is the last."""
    found = looks[-1].found
    phase = stacks_phase(looks[-1].groups)
    if not found.witnesses or found.kind == "moving":
        return Weighed(False, f"{_NOT_A_HANG}: {found.summary}", phase)
    if found.kind in ("process", "gpu"):
        return Weighed(True, found.summary)   # whatever the others do, they will not go on
    alive = signs_of_life(looks)
    if alive:
        return Weighed(False, f"{_NOT_A_HANG}: {alive}", phase)
    return Weighed(True, found.summary, phase, found.kind in _SURE_KINDS or not _SURE.isdisjoint(found.witnesses))


def stacks_phase(groups: Iterable[Group]) -> str:
    """What takes longer than a step, of what any of the ranks is at; "" = none of it."""
    found = set()
    for group in groups:
        found.add(_BY_KIND.get(activity.classify(group.stack).kind, ""))
        names = [split_frame(frame)[0] for frame in group.stack]
        found |= {phase for phase, words in _PHASES if any(words.search(name) for name in names)}
    order = (progress.CHECKPOINT, progress.EVALUATION, progress.COMPILE, progress.DATA)
    return next((phase for phase in order if phase in found), "")


def signs_of_life(looks: Sequence[Look]) -> str:
    """For people: who still does something, and what; "" = nobody."""
    moving = [rank for look in looks for group in look.groups if group.kind == MOVING for rank in group.ranks]
    if moving:
        return f"{names_of(_once(moving))} still {_verb(moving)}"
    ranks = [{(rank.node, rank.pid): rank for report in look.reports for rank in report.ranks} for look in looks]
    for key, rank in ranks[-1].items():
        seen = [one[key] for one in ranks if key in one]
        stacks = {normalise(one.samples[-1]) for one in seen if one.samples}
        if len(stacks) > 1:
            return f"{rank.name} was elsewhere at the last look"
        life = [point for one in seen for point in one.life]
        if len(life) > 1 and (what := _done(life[0], life[-1])):
            return f"{rank.name} {what}"
    return ""


def _done(first: Life, last: Life) -> str:
    if last.moved - first.moved >= MOVED_BYTES:
        return f"has read or written {(last.moved - first.moved) / (1 << 20):.0f} MB"
    if last.below_s - first.below_s >= BELOW_S:
        return f"waits for processes of its own, which have computed for {last.below_s - first.below_s:.1f} s"
    if last.faults - first.faults >= FAULTS:
        return f"has touched {(last.faults - first.faults) * 4 / 1024:.0f} MB of new memory"
    return ""


def _verb(ranks: Sequence[Rank]) -> str:
    return "moves" if len(_once(ranks)) == 1 else "move"


def _once(ranks: Sequence[Rank]) -> list[Rank]:
    return list({(rank.node, rank.pid): rank for rank in ranks}.values())
