"""When a step is later than its phase ever was: then people are told that a run is silent, long before a hang check may
end anything. The phases and their durations are those of hangs.hang.

A false alarm here costs a yellow word, so that the limits are narrow; but a run must not flicker. So a silence that has
passed once raises the limit for good, a phase that was never seen has the hang check's own limit, and all limits are
longer than the way of a step to the reader of a heartbeat (LATE_S).
"""

from __future__ import annotations

from typing import NamedTuple

from safelaunch.hangs.hang import (
    SEEN,
    SHARE,
    START,
    STEP,
    WARM_STEPS,
    WARM_UP,
    Learned,
    Rhythm,
    patience_s,
    phase_of,
    slower,
)

LATE_S = 20.0          # the log is read each 5 s, and a heartbeat comes each 15 s
LATE_START_S = 60.0    # a cold cache, a compilation
STEADY = 2             # pieces of the first steps after which they are as long as the later ones
FEW = 2.0              # times the longest of a phase that was seen less than SEEN times


class StepDue(NamedTuple):
    """When the next step counts as late; times are monotonic seconds."""

    since_s: float
    late_s: float
    phase: str


def next_due(rhythm: Rhythm) -> StepDue | None:
    """When the next step is late; None = the log names no steps, and earlier attempts tell nothing."""
    if rhythm.steps == 0 and START not in rhythm.before:
        return None
    return StepDue(rhythm.since_s, rhythm.since_s + late_after_s(rhythm), phase_of(rhythm))


def late_after_s(rhythm: Rhythm) -> float:
    """Seconds of silence in its present phase, never more than until the first hang check."""
    first_check_s = patience_s(rhythm) / rhythm.patience
    own, before = rhythm.learned.get(rhythm.phase, Learned()), rhythm.before.get(rhythm.phase, Learned())
    if rhythm.phase == STEP:
        warm = rhythm.learned.get(WARM_UP, Learned()).newest[-2:] if own.count < WARM_STEPS else ()
        passed = (length_s for _, length_s in rhythm.silences)
        least_s, longest_s, count = LATE_S, max(own.longest_s, *warm, *passed, 0.0), SEEN
    else:
        is_start = rhythm.phase == START or (rhythm.phase == WARM_UP and own.count < STEADY)
        least_s, count = LATE_START_S if is_start else LATE_S, own.count + before.count
        longest_s = max(own.longest_s, before.longest_s * (1.0 if rhythm.phase in (START, WARM_UP) else slower(rhythm)))
        if not count and rhythm.phase != WARM_UP:
            return first_check_s
    return min(first_check_s, max(least_s, (SHARE if count >= SEEN else FEW) * longest_s))
