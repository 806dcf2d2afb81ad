"""The search for the node behind a drop of speed, as the journal knows it: experiments, measurements, the proof."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

# Step times of an attempt without the slow node, before its speed counts as not come back. The first ten are left out,
# and a recovery shows within 42 at 1 % of noise (docs/slow.md).
PROOF_VALUES = 64


class SlowSearch(NamedTuple):
    """`planned`: attempts that were ended for an experiment. All else is of the newest round of measurements.

    `drop_t`: when the drop was reported that it was made for. `attempt`: the last one before it. `slow`: node, why.
    `from_s` and `to_s`: the seconds of a step before the drop, and in it. `has_won`: whether the speed came back
    without these nodes (None = not known).
    """

    planned: tuple[int, ...] = ()
    drop_t: float | None = None
    attempt: int = 0
    measured: int = 0
    slow: tuple[tuple[str, str], ...] = ()
    from_s: float = 0.0
    to_s: float = 0.0
    step: int = 0   # since which steps took longer
    has_won: bool | None = None
    begun: tuple[tuple[float, float], ...] = ()   # for which drop rounds of measurements have begun, and when


def begins(search: SlowSearch, drop_t: float, t: float) -> SlowSearch:
    """With one more round of measurements that has begun."""
    known = tuple(one for one in search.begun if one[0] == drop_t)
    return search if (drop_t, t) in known else search._replace(begun=(*known, (drop_t, t)))


def judge_swap(search: SlowSearch, attempt: int, nodes: Collection[str], *, step: int | None, lasts: bool, values: int,
               now_s: float | None) -> bool | None:
    """Whether the speed has come back in this attempt, on these nodes, without those that were found slow.

    None = it cannot be told: nobody was found slow, they are used all the same, it is told already, or this is too
    early. `lasts`: the drop does; `values`: the step times of this attempt so far; `now_s`: the middle of the newest.
    In noise that lasts a recovery is told late: nothing is taken back while steps are nearer to what they took before.
    Steps before the drop, which an attempt from an older checkpoint makes again, were fast with those nodes, too
    (simulated: test_found "steps before a drop are no proof that its node was found").
    """
    if not search.slow or search.has_won is not None or attempt <= search.attempt:
        return None
    if any(node in nodes for node, _ in search.slow):
        return None
    if not lasts:
        return True if step is not None and step >= search.step + PROOF_VALUES else None
    if values < PROOF_VALUES or now_s is None:
        return None
    return False if now_s >= math.sqrt(search.from_s * search.to_s) else None
