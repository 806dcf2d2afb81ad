"""The two forms in which people read a time: `clock` in lines that are kept, `moment` in what is read now."""

from __future__ import annotations

from datetime import datetime


def clock(t: float) -> str:
    """2026-11-21T18:08:48+01:00, in the zone of this machine; the same as `date +%FT%T%:z` of the job script."""
    try:
        return datetime.fromtimestamp(t).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{t:.0f}"   # a time that no calendar has: a foreign line in the journal


def moment(t: float, now: float | None = None) -> str:
    """2026-11-21 18:08:48 CET, in the zone of this machine; on the day of `now` 18:08:48 CET."""
    try:
        local = datetime.fromtimestamp(t).astimezone()
        is_today = now is not None and local.date() == datetime.fromtimestamp(now).date()
    except (ValueError, OverflowError, OSError):
        return f"{t:.0f}"
    return local.strftime("%H:%M:%S %Z" if is_today else "%Y-%m-%d %H:%M:%S %Z")
