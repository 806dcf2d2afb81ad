"""The one form in which people read a time."""

from __future__ import annotations

from datetime import datetime


def clock(t: float) -> str:
    """2026-11-21T18:08:48+01:00, in the zone of this machine; the same as `date +%FT%T%:z` of the job script."""
    try:
        return datetime.fromtimestamp(t).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{t:.0f}"   # a time that no calendar has: a foreign line in the journal
