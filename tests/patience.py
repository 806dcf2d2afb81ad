"""How long a test waits: in time during which the machine ran.

A shared machine stands still for 10 to 30 s now and then, and what is waited for stands still with it. So a turn of a
loop counts as MOST_S at most, however long it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MOST_S = 3.0    # a look at Slurm, or at all processes, beside many others
TURN_S = 0.02
MOST_REST_S = 0.5
RESTS = 9       # of ten parts of the time that a wait takes: seven tests wait at once


class Patience:
    """So many seconds, counted from one look at it to the next."""

    def __init__(self, seconds: float) -> None:
        self._left_s = seconds
        self._looked_s = time.monotonic()

    def is_over(self) -> bool:
        """Whether it is used up; what is waited for was looked at since the last question."""
        now_s = time.monotonic()
        self._left_s -= min(now_s - self._looked_s, MOST_S)
        self._looked_s = now_s
        return self._left_s < 0


def is_so_within(what: Callable[[], object], timeout_s: float, every_s: float) -> bool:
    """Whether `what()` is true within a time. It is asked the less often, the longer it takes: a squeue or a search of
    all of /proc, 20 times a second, would take most of a core.
    """
    patience = Patience(timeout_s)
    while True:
        begun_s = time.monotonic()
        if what():
            return True
        if patience.is_over():
            return False
        time.sleep(min(max(every_s, RESTS * (time.monotonic() - begun_s)), MOST_REST_S))


def stand(seconds: float) -> tuple[float, float]:
    """Sleep so long; the longest time for which this process got no turn meanwhile, and all such times together."""
    end_s = time.monotonic() + seconds
    longest_s = total_s = 0.0
    while (before_s := time.monotonic()) < end_s:
        time.sleep(min(TURN_S, end_s - before_s))
        late_s = time.monotonic() - before_s - TURN_S
        longest_s = max(longest_s, late_s)
        total_s += max(0.0, late_s)
    return longest_s, total_s
