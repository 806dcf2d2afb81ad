"""A call that may use so much processor time, and no more."""

from __future__ import annotations

import re
import signal
import time

import pytest

from safelaunch.base.io.cputime import TookTooLong, within


def test_a_pattern_that_takes_for_ever_is_ended_within_its_time_and_nothing_of_the_timer_is_left() -> None:
    start_s = time.process_time()
    before = signal.getsignal(signal.SIGVTALRM)
    for pattern in (r"(a+)+$", r"(a|a)+$"):
        with pytest.raises(TookTooLong):
            within(0.05, lambda: re.search(pattern, "a" * 64 + "b"))   # noqa: B023 - called at once
    assert time.process_time() - start_s < 1.0
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0) and signal.getsignal(signal.SIGVTALRM) is before


def test_what_is_done_in_time_comes_back_and_errors_are_its_own() -> None:
    assert within(1.0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(1.0, lambda: 1 / 0)
