"""When a log's line was written, by the time stamp at its start, in epoch seconds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone

from safelaunch.verbs.logs.rankfold import PREFIX
from safelaunch.why import logstamps
from safelaunch.why.logstamps import days_since_epoch

DAY_S = 86400.0
SKEW_S = 3600.0          # clocks of nodes; what lies further outside of its attempt is no time of a line
HEAD_BYTES = 512
_EPOCH = re.compile(rb"\d{9,10}\.\d")
_ZONE = re.compile(rb":\d\d(?:[.,]\d{1,9})?(?:(?P<utc>Z| UTC)|(?P<sign>[+-])(?P<h>\d\d):?(?P<m>\d\d))")


def line_t(line: bytes, near_t: float, offset_s: float) -> float | None:
    """The line's time; None = it has none. `near_t`: about when it was written, to within half a day where the stamp
    has no date; `offset_s`: of this machine's zone, for stamps without one.
    """
    head = line[:HEAD_BYTES]
    prefix = PREFIX.match(head)
    start = prefix.end() if prefix else 0
    stamp = logstamps.match(head, start)
    if stamp is None or stamp.t is None:
        return None
    text = head[start:stamp.end]
    if _EPOCH.search(text):
        return stamp.t
    zone_s = _zone_s(text)
    away_s = offset_s if zone_s is None else zone_s
    return _dated(stamp.t, near_t + away_s) - away_s


def first_since(
    lines: Iterable[tuple[int, bytes]], since_t: float, started_t: float, until_t: float, offset_s: float,
) -> tuple[int | None, bool]:
    """The place of the first line that was written at `since_t` or later, and whether any line has a time. `lines`:
    each with its place; `started_t`, `until_t`: when their attempt began and ended.
    """
    near_t, is_any = started_t, False
    for place, line in lines:
        t = line_t(line, near_t, offset_s)
        if t is None or not started_t - SKEW_S <= t <= until_t + SKEW_S:
            continue
        if t >= since_t:
            return place, True
        near_t, is_any = t, True
    return None, is_any


def _zone_s(text: bytes) -> float | None:
    found = _ZONE.search(text)
    if found is None or found["utc"]:
        return None if found is None else 0.0
    return (1 if found["sign"] == b"+" else -1) * (int(found["h"]) * 3600.0 + int(found["m"]) * 60.0)


def _dated(t: float, near: float) -> float:
    """The stamp's time with the date, or the year, that brings it closest to `near`; both as the log's clock shows."""
    if t < DAY_S:
        choices = [t + DAY_S * (near // DAY_S + day) for day in (-1, 0, 1)]
    elif t < 366 * DAY_S:
        day = datetime.fromtimestamp(t, timezone.utc)
        this = datetime.fromtimestamp(near, timezone.utc).year
        choices = [days_since_epoch(year, day.month, day.day) * DAY_S + t % DAY_S
                   for year in (this - 1, this, this + 1)]
    else:
        return t
    return min(choices, key=lambda choice: abs(choice - near))
