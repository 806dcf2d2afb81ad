"""How long a test waits: in time during which the machine ran.

A shared machine stands still for 10 to 30 s now and then, and what is waited for stands still with it. So a turn of a
loop counts as MOST_S at most, however long it was.
"""

from __future__ import annotations

import time

MOST_S = 3.0    # a look at Slurm, or at all processes, beside many others
TURN_S = 0.02


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
