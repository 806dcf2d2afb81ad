"""Seconds per step of a run, from the log of one attempt after another: what nodehealth.slow.changepoint is fed with.

They are the log's own figures; where it has none, the time between two looks at its step lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from safelaunch.nodehealth.slow.changepoint import LEARN, SETTLE, PaceChange, PaceWatch, StepTime, follow, restart
from safelaunch.run.steppace import StepPace
from safelaunch.trainlog.figures import median
from safelaunch.trainlog.steplines import MOST_LINES, StepLine

BY_LOG, BY_CLOCK = "log", "clock"
NEWEST = 32
WINDOW_S = 100.0   # of one value by the clock: the supervisor sees a line up to a second late, twice


class LogPace(NamedTuple):
    """What is known of the speed, and how far the log of the newest attempt was read for it.

    `since`: the step and the monotonic second at which a value by the clock begins.
    """

    watch: PaceWatch
    attempt: int = 0
    step: int | None = None
    source: str = ""
    phase: str = ""
    since: tuple[int, float] | None = None
    values: int = 0   # of the newest attempt, without those of a phase


def go_on(known: StepPace | None, tolerance: float) -> LogPace:
    """Where an earlier supervisor has stopped."""
    if known is None:
        return LogPace(PaceWatch(tolerance))
    normal = None if known.normal_s is None else math.log(known.normal_s)
    watch = PaceWatch(tolerance, settle=0, level=math.log(known.level_s), learned=LEARN, noise=known.noise,
                      normal=normal)
    return LogPace(watch, known.attempt, known.step, known.source)


def of_attempt(pace: LogPace, attempt: int) -> LogPace:
    """The same for this attempt, whose steps may begin lower."""
    if pace.attempt == attempt:
        return pace
    return pace._replace(watch=restart(pace.watch), attempt=attempt, step=None, phase="", since=None,
                         values=0)


def most_lines(pace: LogPace) -> int:
    """How many lines of a piece of the log to read: the newest ones, and until there is a level all that make it.
    (A node that was slow from step 60 on was told at step 206, as the first 42 of 8 values a look were mixed.)
    """
    return SETTLE + LEARN if pace.watch.level is None else MOST_LINES


def take_in(
    pace: LogPace, lines: Sequence[StepLine], phase: str, read_s: float
) -> tuple[LogPace, tuple[PaceChange, ...]]:
    """After new lines of the log, read at this monotonic second, and what they have shown. `phase`: what the log has
    named behind the last of them.
    """
    changes = []
    is_by_log = pace.source == BY_LOG or any(line.seconds is not None for line in lines)
    pace, times = _by_log(pace, lines) if is_by_log else _by_clock(pace, lines, phase, read_s)
    pace = pace._replace(values=pace.values + sum(not time.phase for time in times))
    for time in times:
        watch, change = follow(pace.watch, time)
        pace = pace._replace(watch=watch)
        changes += [change] if change else []
    return pace._replace(phase=pace.phase or phase), tuple(changes)


def newest_s(pace: LogPace) -> float | None:
    """The middle of the newest values of this attempt, seconds; None = its first values are not over."""
    count = min(NEWEST, pace.values - SETTLE)
    return math.exp(median([value for _, value in pace.watch.recent[-count:]])) if count > 0 else None


def level_of(pace: LogPace) -> StepPace | None:
    """What the journal passes on; None while there is no level."""
    watch = pace.watch
    if watch.level is None or pace.step is None:
        return None
    return StepPace(pace.attempt, pace.step, round(math.exp(watch.level), 6), round(watch.noise, 6), pace.source,
                    None if watch.normal is None else round(math.exp(watch.normal), 6))


def _from(pace: LogPace, source: str) -> LogPace:
    """The two sources do not compare: the log's figure may leave out what the clock counts."""
    return pace if pace.source == source else pace._replace(watch=PaceWatch(pace.watch.tolerance), source=source)


def _is_next(step: int, last: int | None) -> bool:
    """Ranks that lag behind repeat a few older steps; a count that begins anew falls far."""
    return last is None or step > last or step < last / 2


def _by_log(pace: LogPace, lines: Sequence[StepLine]) -> tuple[LogPace, list[StepTime]]:
    pace = _from(pace, BY_LOG)._replace(since=None)
    last, phase, times = pace.step, pace.phase, []
    for line in lines:
        phase = phase or line.phase
        if line.seconds is not None and _is_next(line.step, last):
            times.append(StepTime(line.step, line.seconds, phase))
            last, phase = line.step, ""
    return pace._replace(step=last, phase=phase), times


def _by_clock(pace: LogPace, lines: Sequence[StepLine], phase: str, read_s: float) -> tuple[LogPace, list[StepTime]]:
    """A value of WINDOW_S at least; none while the log names a phase."""
    step = max((line.step for line in lines), default=None)
    if step is None or not _is_next(step, pace.step):
        return pace, []
    is_in_phase = bool(pace.phase or phase or any(line.phase for line in lines))
    pace = pace._replace(step=step, phase="")
    if pace.since is None or is_in_phase or step <= pace.since[0]:
        return pace._replace(since=(step, read_s)), []
    steps, took_s = step - pace.since[0], read_s - pace.since[1]
    if took_s < WINDOW_S:
        return pace, []
    return _from(pace, BY_CLOCK)._replace(since=(step, read_s)), [StepTime(step, took_s / steps)]
