"""How people read a time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from safelaunch.base.io.localtime import moment

T = 1_795_609_930.0   # 2026-11-25 12:32:10 UTC
DAY_S = 86400.0


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Twelve hours east of UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "XYZ-12")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(("now", "said"), [
    (T + 60, "00:32:10 XYZ"), (T - 3600, "2026-11-26 00:32:10 XYZ"), (T + DAY_S, "2026-11-26 00:32:10 XYZ"),
    (None, "2026-11-26 00:32:10 XYZ"),
], ids=["today there", "tomorrow there", "yesterday", "no day"])
def test_the_date_is_left_out_on_that_day_of_this_machines_zone(now: float | None, said: str) -> None:
    assert moment(T, now) == said


def test_a_time_that_no_calendar_has_is_shown_as_its_number() -> None:
    assert moment(1e30, T) == f"{1e30:.0f}"
