"""Processor time, as far as a machine with neighbours can tell it.

A limit in seconds that holds on a quiet machine fails on a shared one. Beside another thread of the same core, work
takes twice its time. A virtual machine's processor time holds what its host gave to others. So the least of some tries
counts, and each is read against work of a known length that is timed right beside it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

TRIES = 5
_KNOWN = (re.compile(rb"[a-f]\d{1,3}x").search, b"a12." * 32_000)
_KNOWN_S = 0.001       # on the machine that the limits were set on (Python 3.11): the least of 1,000


def seconds_of(work: Callable[[], object]) -> float:
    """Processor time of one call, in seconds."""
    start_s = time.process_time()
    work()
    return time.process_time() - start_s


def at_rest_s(work: Callable[[], object], enough_s: float = 0.0, tries: int = TRIES) -> float:
    """The least processor time of some calls, in seconds of a quiet machine; no more calls once one took `enough_s`."""
    least = seconds_of(work)
    for _ in range(tries - 1):
        if least <= enough_s:
            break
        least = min(least, seconds_of(work) / slowness())
    return least


def least_s(work: Callable[[], object], tries: int = TRIES) -> float:
    """The least processor time of some calls, in seconds of this machine now: to be read against another one."""
    return min(seconds_of(work) for _ in range(tries))


def slowness() -> float:
    """How many times as long as on a quiet machine known work takes now; at least 1."""
    search, text = _KNOWN
    return max(1.0, least_s(lambda: search(text), 2) / _KNOWN_S)
