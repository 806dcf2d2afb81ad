"""What the nodes of a run showed when its steps became longer (node.condition), compared: does one differ clearly?

A node differs in a figure where it lies on the bad side of the median of the others. It must lie there by a least
effect, and by 6 robust deviations of theirs (1.4826 times the median absolute deviation). Where several differ, none is
named: what is on many nodes slows no single one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from safelaunch.core.checks.results import OK, CheckReport, CheckResult
from safelaunch.core.numbers import figure as in_digits
from safelaunch.core.progress.figures import median, robust_deviation
from safelaunch.core.slow import ranktimes
from safelaunch.core.slow.fleet import LEAST_NODES

Z = 6.0
SAME = "no node differs"


class Figure(NamedTuple):
    """What is compared: its name for people, whether more is worse, and how much more (or less) counts at least. That
    is the larger of a number and a share of the others' median.
    """

    what: str
    unit: str
    is_more_worse: bool
    least: float
    share: float = 0.0


FIGURES: dict[str, Figure] = {
    "steal": Figure("CPU time stolen", "%", True, 2.0),
    "foreign_cpu": Figure("CPU of other users", "cores", True, 0.5),
    "cpu_throttled": Figure("CPU throttled", "times/s", True, 1.0),
    ranktimes.NAME: Figure("step time of its ranks", "s", True, 0.0, 0.01),
    "cpu_clock": Figure("CPU clock", "MHz", False, 0.0, 0.1),
    "temperature": Figure("temperature", "C", True, 15.0),
    "nic_errors": Figure("network errors", "", True, 1000.0, 1.0),
    "ib_errors": Figure("InfiniBand errors", "", True, 100.0, 1.0),
    "gpu_clock": Figure("GPU clock", "MHz", False, 0.0, 0.05),
    "gpu_temperature": Figure("GPU temperature", "C", True, 12.0),
    "gpu_slowed": Figure("GPUs slowed by heat or power", "", True, 1.0),
}


class Condition(NamedTuple):
    """node → what it showed, node → in what it differs, and the sentence on all of them."""

    lines: Mapping[str, str]
    odd: Mapping[str, str]
    verdict: str


def with_times(reports: Sequence[CheckReport], times: Mapping[str, float]) -> list[CheckReport]:
    """The reports with what a step takes on their nodes (core.slow.ranktimes)."""
    return [report._replace(results=(*report.results, CheckResult(
        ranktimes.NAME, "", OK, "", {"value": times[report.node]}))) if report.node in times else report
        for report in reports]


def compare(reports: Sequence[CheckReport], silent: Mapping[str, str]) -> Condition:
    """All nodes; `silent`: node → why it gave no answer."""
    values = {report.node: _figures(report) for report in reports}
    odd: dict[str, list[str]] = {}
    for name in FIGURES:
        of_nodes = {node: found[name] for node, found in values.items() if name in found}
        for node, text in _odd_in(FIGURES[name], of_nodes):
            odd.setdefault(node, []).append(text)
    lines = {**{node: _line(found) for node, found in values.items()},
             **{node: f"no answer: {why}" for node, why in silent.items()}}
    told = {node: "; ".join(texts) for node, texts in odd.items()}
    return Condition(lines, told, _verdict(told, len(values)))


def _verdict(odd: Mapping[str, str], seen: int) -> str:
    if seen < LEAST_NODES:
        return f"{seen} nodes have answered: nothing to compare"
    if len(odd) == 1:
        (node, text), = odd.items()
        return f"{node} differs: {text}"
    if odd:
        return f"{len(odd)} nodes differ ({', '.join(sorted(odd)[:4])}): no single one is named"
    return SAME


def _figures(report: CheckReport) -> dict[str, float]:
    return {result.name: value for result in report.results if result.outcome == OK and result.name in FIGURES
            and (value := result.number("value")) is not None}


def _odd_in(figure: Figure, values: Mapping[str, float]) -> Iterable[tuple[str, str]]:
    if len(values) < LEAST_NODES:
        return
    for node, value in values.items():
        others = [other for name, other in values.items() if name != node]
        level = median(others)
        worse = value - level if figure.is_more_worse else level - value
        least = max(figure.least, figure.share * abs(level))
        if worse > 0 and worse >= least and worse >= Z * robust_deviation(others, level):
            yield node, f"{figure.what} {_say(figure, value)}, others {_say(figure, level)}"


def _line(found: Mapping[str, float]) -> str:
    told = [f"{figure.what} {_say(figure, found[name])}" for name, figure in FIGURES.items() if name in found]
    return ", ".join(told) or "nothing could be read"


def _say(figure: Figure, value: float) -> str:
    return f"{in_digits(value, 4 if figure.unit == 's' else 2)} {figure.unit}".rstrip()
