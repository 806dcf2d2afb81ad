"""The clocks of a log: stamps without a year or a day get theirs, and hosts whose clock is off are found out.

Stamps arrive as `logstamps` reads them: below DAY_S is a time of day, below YEAR_S a date without a year.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from safelaunch.trainlog.figures import median
from safelaunch.why.findings import Finding, Line, Progress
from safelaunch.why.logstamps import days_since_epoch

Item = Finding | Progress | Line
Stamped = TypeVar("Stamped", Finding, Progress, Line)

DAY_S = 86400.0
YEAR_S = 366 * DAY_S
LEAST_OFF_S = 2.0          # less is the time that a line takes to the file
LEAST_PAIRS = 3            # of the same step on several hosts
NEIGHBOURS = 8             # lines before and after one, in a file that all hosts write
LEAST_NEIGHBOURS = 12      # lines of a host that must have such


def settle_file(
    findings: Iterable[Finding], signs: Iterable[Progress], lines: Iterable[Line], end_t: float | None,
) -> tuple[tuple[Finding, ...], tuple[Progress, ...], tuple[Line, ...]]:
    """All that one file gave, with stamps in epoch seconds; `end_t` is about when its last line was written."""
    findings, signs, lines = tuple(findings), tuple(signs), tuple(lines)
    items: tuple[Item, ...] = (*findings, *signs, *lines)
    stamps = dict(sorted((item.offset, item.t) for item in items if item.t is not None))
    settled = dict(zip(stamps, settle(tuple(stamps.values()), end_t), strict=True))
    return _with(findings, settled), _with(signs, settled), _with(lines, settled)


def _with(items: Iterable[Stamped], stamps: Mapping[int, float]) -> tuple[Stamped, ...]:
    return tuple(item if item.t is None else item._replace(t=stamps[item.offset]) for item in items)


def settle(stamps: Sequence[float], end_t: float | None) -> list[float]:
    """The stamps of one file, in its order, as epoch seconds.

    A date without a year lies in the year that brings it nearest to a whole stamp of the file, or to `end_t`. A time of
    day lies on the day nearest to the stamp before it.
    """
    whole = [t for t in stamps if t >= YEAR_S]
    about = whole[-1] if whole else end_t
    dated = [_in_year(t, about) if DAY_S <= t < YEAR_S and about is not None else t for t in stamps]
    known = next((t for t in dated if t >= DAY_S), None)
    settled: list[float] = []
    for t in dated:
        if t < DAY_S and known is not None:
            t = t + DAY_S * round((known - t) / DAY_S)
        known = t
        settled.append(t)
    return settled


def estimate_offsets(
    findings: Iterable[Finding], signs: Iterable[Progress], lines: Iterable[Line], files: Sequence[str],
) -> dict[str, float]:
    """How much the clock of each host is ahead of the others', in seconds; of a file where no host is known.

    By the steps that several of them report, else by the lines that stand beside theirs in one file.
    """
    offsets = offsets_of_steps(_steps(signs, files))
    if not offsets and len(files) == 1:
        items: tuple[Item, ...] = (*findings, *signs, *lines)
        spoken = sorted((item.offset, item.host, item.t) for item in items
                        if item.host is not None and item.t is not None)
        offsets = offsets_of_neighbours([(host, t) for _, host, t in spoken])
    return offsets


def tied_writers(signs: Iterable[Progress], files: Sequence[str]) -> frozenset[str]:
    """The hosts, or files, that report the same steps often enough for their clocks to be compared."""
    return frozenset(_ahead_of_steps(_steps(signs, files)))


def writer_of(item: Item, files: Sequence[str]) -> str:
    """Whose clock stamped the item: the host, or the file where no host is known."""
    return item.host or files[item.file]


def _steps(signs: Iterable[Progress], files: Sequence[str]) -> list[tuple[str, int, float]]:
    return [(writer_of(sign, files), sign.step, sign.t) for sign in signs
            if sign.step is not None and sign.t is not None]


def correct(items: Iterable[Stamped], offsets_s: Mapping[str, float], files: Sequence[str]) -> tuple[Stamped, ...]:
    """The items as if all clocks agreed."""
    return tuple(item if item.t is None else item._replace(
        t=item.t - offsets_s.get(writer_of(item, files), 0.0)) for item in items)


def _in_year(t: float, about: float) -> float:
    """A date without a year, read as one of 1970, in the year that brings it nearest to `about`."""
    year = 1970 + int(about // (365.2425 * DAY_S))
    march = days_since_epoch(1970, 3, 1) * DAY_S
    moved = []
    for near in (year - 1, year, year + 1):
        is_before_march = t < march
        first = days_since_epoch(near, 1, 1) if is_before_march else days_since_epoch(near, 3, 1)
        moved.append(t - (0.0 if is_before_march else march) + first * DAY_S)
    return min(moved, key=lambda moment: abs(moment - about))


def offsets_of_steps(signs: Iterable[tuple[str, int, float]]) -> dict[str, float]:
    """How much the clock of each writer is ahead, from (writer, step, t): all make the same step at the same time."""
    return _sure(_ahead_of_steps(signs))


def _ahead_of_steps(signs: Iterable[tuple[str, int, float]]) -> dict[str, list[float]]:
    """How far each writer is from the middle of all, at each of the steps that it shares; LEAST_PAIRS at least."""
    by_step: dict[int, dict[str, float]] = {}
    for writer, step, t in signs:
        by_step.setdefault(step, {}).setdefault(writer, t)
    ahead: dict[str, list[float]] = {}
    for times in by_step.values():
        if len(times) > 1:
            middle = median(list(times.values()))
            for writer, t in times.items():
                ahead.setdefault(writer, []).append(t - middle)
    return {writer: times for writer, times in ahead.items() if len(times) >= LEAST_PAIRS}


def offsets_of_neighbours(lines: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The same from (writer, t) of lines in the order of one file that all of them write."""
    ahead: dict[str, list[float]] = {}
    for index, (writer, t) in enumerate(lines):
        near = [other_t for other, other_t in lines[max(0, index - NEIGHBOURS):index + NEIGHBOURS + 1]
                if other != writer]
        if len(near) >= NEIGHBOURS:
            ahead.setdefault(writer, []).append(t - median(near))
    return _sure({writer: times for writer, times in ahead.items() if len(times) >= LEAST_NEIGHBOURS})


def _sure(ahead: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The offsets that are larger than what their own samples differ by."""
    offsets = {}
    for writer, times in ahead.items():
        middle = median(times)
        spread = median([abs(t - middle) for t in times])
        if abs(middle) >= LEAST_OFF_S and spread * 2 < abs(middle):
            offsets[writer] = round(middle, 3)
    return offsets
