"""Who the others wait for in a training that makes steps: the ranks that are never seen to wait.

Ranks of one training make their steps together. The slow one computes while the others stand in a collective, or in the
backward pass, where gradients are averaged. That is a share of the samples, not one of them: two samples may fall into
the same place of two steps (a run with 0.5 s a step was called a deadlock).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from safelaunch.stacks.activity import COLLECTIVE, RENDEZVOUS, classify, is_in_backward
from safelaunch.stacks.placetext import tell_place
from safelaunch.stacks.ranks import ObservedRank, Stack
from safelaunch.stacks.scene import HangVerdict, names_of, odd_one

SAMPLES = 12       # of each rank; three seconds with those of other nodes
LEAST = 6          # fewer say nothing
SELDOM = 0.2       # of its samples, at most, in which the one that is waited for waits itself
APART = 0.3        # by how much more each other rank waits
SURE, NOBODY = 0.7, 0.6


class _Waiting(NamedTuple):
    rank: ObservedRank
    share: float


def judge_moving(ranks: Sequence[ObservedRank]) -> HangVerdict:
    """The verdict on ranks whose log goes on naming steps: no hang, and who is waited for, where that is plain."""
    slow, share = waited_for(ranks)
    if not slow:
        return HangVerdict("moving", "the log goes on naming steps; no rank is waited for more than the others", NOBODY)
    nodes = tuple(dict.fromkeys(rank.node for rank in slow))
    where = f" on {nodes[0]}" if len(nodes) == 1 and len(slow) > 1 else ""
    place = tell_place(_usual(slow[0]))
    return HangVerdict(
        "moving", f"the log goes on naming steps; the others wait for {names_of(slow)}{where}"
        f"{f', mostly in {place}' if place else ''}: each did in {share:.0%} of the samples or more", SURE,
        tuple(odd_one(rank, "waits for nobody") for rank in slow))


def waited_for(ranks: Sequence[ObservedRank]) -> tuple[tuple[ObservedRank, ...], float]:
    """The few ranks that wait for nobody while all others do, and the least share of looks in which those wait; () =
    there are none, or too little was seen.
    """
    seen = sorted((_Waiting(rank, _share(rank)) for rank in ranks if len(rank.samples) >= LEAST), key=_share_of)
    if len(seen) < len(ranks) or len(seen) < 2:
        return (), 0.0
    slow = [one for one in seen if one.share <= SELDOM]
    others = seen[len(slow):]
    if not slow or len(slow) > len(others) or others[0].share < slow[-1].share + APART:
        return (), 0.0
    return tuple(one.rank for one in slow), others[0].share


def _share_of(one: _Waiting) -> float:
    return one.share


def _share(rank: ObservedRank) -> float:
    return sum(map(_waits, rank.samples)) / len(rank.samples)


def _waits(stack: Stack) -> bool:
    return is_in_backward(stack) or classify(stack).kind in (COLLECTIVE, RENDEZVOUS)


def _usual(rank: ObservedRank) -> Stack:
    """Where it was most often."""
    return max(rank.samples, key=rank.samples.count)
