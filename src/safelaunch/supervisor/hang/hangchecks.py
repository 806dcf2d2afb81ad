"""The hang checks of a silent training, in their order, for the leader and for `attach`. Two must agree, and a third is
for what may pass by itself (hangs.proof).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from safelaunch.hangs.proof import (
    ALL_LOOKS_S,
    BETWEEN_LOOKS_S,
    EndedRanks,
    Examination,
    is_certain,
    last_look_s,
    pause_before_last_s,
    verdict_of,
)
from safelaunch.stacks.io.collect import Collected, Depth
from safelaunch.stacks.scene import HangVerdict
from safelaunch.stacks.stacks import fold
from safelaunch.stacks.verdict import judge_hang
from safelaunch.supervisor.state.hangs import HangWatch

_FIRST, _SECOND = Depth(samples=3, gap_s=1.0), Depth(samples=8, gap_s=0.6)
_LOOKS = ((_FIRST, ALL_LOOKS_S), (_SECOND, ALL_LOOKS_S), (None, 0.0))  # and what the checks after each take at most

Look = Callable[[Depth], Generator[float, Any, Collected]]


def examine(hangs: HangWatch, now_s: Callable[[], float], look: Look, is_silent: Callable[[], bool],
            keep: Callable[[Collected, Examination], None],
            ended: Callable[[], EndedRanks] = lambda: EndedRanks.NONE,
            ) -> Generator[float, Any, HangVerdict | str | None]:
    """The verdict of checks that agree, or why they show no hang; None = it is silent no more. Yields pauses.

    `is_silent`: whether that is still so after a look; `keep` takes what each look has shown; `ended`: whether ranks
    have ended, as guards say.
    """
    looks = hangs.earlier_checks()
    for depth, more_s in _LOOKS:
        if depth is None:   # only for what may pass by itself
            if is_certain(hangs.rhythm, looks):
                break
            yield pause_before_last_s(hangs.rhythm, now_s(), looks)
            depth = Depth(samples=round(last_look_s(looks)), gap_s=1.0, deadline_s=60.0)
        elif depth is not _FIRST:
            yield BETWEEN_LOOKS_S
        collected = yield from look(depth)
        if not is_silent():
            return None
        groups = fold(rank for report in collected.reports for rank in report.ranks)
        gone = ended()
        found = judge_hang(collected.reports, collected.silent, groups=groups, has_ended=gone is not EndedRanks.NONE)
        looks.append(Examination(collected.reports, groups, found, gone))
        hangs.note_check(looks[-1])
        keep(collected, looks[-1])
        if why_not := hangs.conclude(now_s(), looks, more_s):
            return why_not
    return verdict_of(looks)
