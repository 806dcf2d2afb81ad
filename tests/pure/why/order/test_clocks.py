from __future__ import annotations

import pytest

from safelaunch.why.findings import Finding, Progress
from safelaunch.why.logstamps import days_since_epoch
from safelaunch.why.order import clocks
from tests.tables import each

MAY = days_since_epoch(2024, 5, 1) * 86400.0
MAY_1970 = days_since_epoch(1970, 5, 1) * 86400.0


@each(("year", "month", "day", "days"), [
    (1970, 1, 1, 0), (1969, 12, 31, -1), (2000, 2, 29, 11016), (2024, 5, 1, 19844), (2100, 3, 1, 47541),
])
def test_days_are_counted_as_the_calendar_does(year: int, month: int, day: int, days: int) -> None:
    assert days_since_epoch(year, month, day) == days


def test_a_date_without_a_year_takes_that_of_a_whole_stamp_of_the_file() -> None:
    assert clocks.settle((MAY, MAY_1970 + 60), end_t=MAY + 3e8) == [MAY, MAY + 60]


def test_a_date_without_a_year_takes_the_files_own_where_no_stamp_is_whole() -> None:
    assert clocks.settle((MAY_1970,), end_t=MAY + 5 * 86400) == [MAY]


def test_december_is_of_the_year_before_a_file_written_in_january() -> None:
    december, january = (days_since_epoch(1970, 12, 31) * 86400.0, days_since_epoch(2025, 1, 2) * 86400.0)
    assert clocks.settle((december,), end_t=january) == [days_since_epoch(2024, 12, 31) * 86400.0]


def test_a_time_of_day_lies_on_the_day_of_the_stamp_before_it() -> None:
    assert clocks.settle((MAY + 100, 160.0), None) == [MAY + 100, MAY + 160]


def test_a_time_of_day_goes_past_midnight() -> None:
    assert clocks.settle((MAY + 86390, 5.0), None) == [MAY + 86390, MAY + 86405]


def test_times_of_day_alone_go_past_midnight_too() -> None:
    assert clocks.settle((86000.0, 86390.0, 5.0), None) == [86000.0, 86390.0, 86405.0]


def steps_of_three(count: int) -> list[tuple[str, int, float]]:
    """Steps of three hosts, one of whose clocks is ahead."""
    return [(host, step, 10.0 * step + 37.0 * (host == "b")) for step in range(count) for host in ("a", "b", "c")]


def test_a_clock_that_is_ahead_is_known_by_the_steps() -> None:
    assert clocks.offsets_of_steps(steps_of_three(5)) == {"b": 37.0}


def test_two_common_steps_are_too_few_to_correct_a_clock() -> None:
    assert clocks.offsets_of_steps(steps_of_three(2)) == {}


def test_a_clock_that_is_ahead_is_known_by_the_lines_beside_its_own() -> None:
    lines = [(host, number - 55.0 * (host == "b")) for number in range(40) for host in ("a", "b", "c", "d")]
    assert clocks.offsets_of_neighbours(lines) == {"b": pytest.approx(-55.0, abs=1.0)}


def test_findings_are_put_on_the_common_clock() -> None:
    found = Finding("x", 0, 5, 1, "boom", host="b", t=137.0)
    assert clocks.correct([found], {"b": 37.0}, ["all.log"])[0].t == 100.0


def test_a_file_without_hosts_has_a_clock_of_its_own() -> None:
    signs = [Progress(file, step, step, t=10.0 * step + 50.0 * (file == 1)) for file in range(3) for step in range(4)]
    assert clocks.estimate_offsets([], signs, [], ["a", "b", "c"]) == {"b": 50.0}
