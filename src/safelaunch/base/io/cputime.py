"""A call with a limit of processor time: a user's regular expression can take for ever on some line.

Python's regular expressions check for signals while they search (Modules/_sre, every 4096 steps). So a timer of the
process's own time ends one anywhere. Only the main thread takes signals: in another one there is no limit.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TookTooLong(Exception):
    """The call was ended: its time was used up."""


def within(cpu_s: float, call: Callable[[], T]) -> T:
    """What the call returns; raises TookTooLong once it has used that much processor time."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    is_counted = True

    def end(number: int, frame: object) -> None:
        if is_counted:
            raise TookTooLong(f"more than {cpu_s:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, end)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
        try:
            return call()
        finally:
            is_counted = False   # a late signal interrupts nobody
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    finally:
        signal.signal(signal.SIGVTALRM, before)
