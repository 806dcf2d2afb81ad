"""When a log's line was written."""

from __future__ import annotations

from datetime import datetime, timezone

from safelaunch.verbs.logs.linetimes import first_since, line_t
from tests.tables import each

NOON_T = datetime(2026, 11, 25, 12, tzinfo=timezone.utc).timestamp()
HOUR_S = 3600.0


@each(("line", "offset_s", "ago_s"), [
    (b"[n0:1]:2026-11-25 11:30:00,250 INFO x", 0.0, 1799.75),
    (b"[n0:1]:2026-11-25 12:30:00 INFO x", HOUR_S, 1800.0),
    (b"2026-11-25T11:30:00Z x", 5 * HOUR_S, 1800.0),
    (b"2026-11-25T13:30:00+02:00 x", 5 * HOUR_S, 1800.0),
    (b"2026-11-25T09:30:00-0200 x", 5 * HOUR_S, 1800.0),
    (b"[n0:1]:[1795609800.000000] ucx", 5 * HOUR_S, NOON_T - 1795609800),
    (b"[rank0]:nothing", 0.0, None), (b"[n0:1]:step 5", 0.0, None),
    (b"I1125 11:30:00.000000 77 a.py:3] x", 0.0, 1800.0),
    (b"11:30:00 x", 0.0, 1800.0), (b"00:30:00 x", 13 * HOUR_S, 0.5 * HOUR_S),
    (b"Nov 25 11:30:00 n0 kernel: x", 0.0, 1800.0), (b"[  12.345678] dmesg", 0.0, None),
    (b"2026-99-99 99:99:99 x" * 500_000, 0.0, "some"),
], ids=["Python", "of the zone", "UTC", "east", "west", "epoch", "none", "a step", "glog", "time of day",
        "time of day, next day there", "syslog", "since boot", "no date, 10 MB"])
def test_a_lines_time(line: bytes, offset_s: float, ago_s: float | str | None) -> None:
    t = line_t(line, NOON_T, offset_s)
    if ago_s == "some":
        assert t is not None
    else:
        assert t == (None if ago_s is None else NOON_T - float(ago_s))


LINES = [b"head", b"11:00:00 a", b"Traceback", b"11:30:00 b", b"a trace of b", b"12:30:00 c"]


@each(("since_s", "place"), [(-4000.0, 1), (-3600.0, 1), (-3599.0, 3), (-1799.0, 5), (1801.0, None)])
def test_lines_without_a_time_belong_to_the_one_before(since_s: float, place: int | None) -> None:
    found = first_since(enumerate(LINES), NOON_T + since_s, NOON_T - HOUR_S, NOON_T + HOUR_S, 0.0)
    assert found == (place, True)


@each("lines", [[], [b"step 1"], [b"2019-01-01 00:00:00 a date in the data"]])
def test_a_log_without_times_of_its_attempt_says_nothing(lines: list[bytes]) -> None:
    assert first_since(enumerate(lines), NOON_T, NOON_T - HOUR_S, NOON_T + HOUR_S, 0.0) == (None, False)


def test_a_clock_without_a_date_goes_on_over_midnight() -> None:
    lines = [b"%02d:00:00 x" % (hour % 24) for hour in range(12, 60, 6)]
    found = first_since(enumerate(lines), NOON_T + 30 * HOUR_S, NOON_T, NOON_T + 60 * HOUR_S, 0.0)
    assert found == (5, True)
