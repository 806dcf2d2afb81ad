"""A failing scenario made small: faults dropped one by one, then shortened, as long as the same invariant breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.run import run
from tests.simulation.scenario import Scenario

SIMPLE = Scenario()
PLAIN = ("spare_nodes", "fs_clock_s", "fs_late_s", "fs_latency_s", "net_latency_s", "handles_signal", "ignores_term",
         "save_s", "load_s", "step_s", "save_every", "limit_min", "slurmd_timeout_s")


def first_words(violations: list[str]) -> str:
    """What tells one broken invariant from another: its text without times, numbers and names."""
    if not violations:
        return ""
    text = violations[0].partition(": ")[2]
    return "".join(char for char in text if not char.isdigit())[:40]


def shrink(scenario: Scenario, does_fail: Callable[[Scenario], str] | None = None) -> Scenario:
    """The smallest scenario found that breaks the same invariant."""
    judge = does_fail or (lambda one: first_words(run(one).violations))
    wanted = judge(scenario)
    if not wanted:
        return scenario
    again = True
    while again:
        again = False
        for smaller in _smaller(scenario):
            if judge(smaller) == wanted:
                scenario, again = smaller, True
                break
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    faults = scenario.faults
    for index in range(len(faults)):
        yield replace(scenario, faults=faults[:index] + faults[index + 1:])
    for name in PLAIN:
        if getattr(scenario, name) != getattr(SIMPLE, name):
            yield replace(scenario, **{name: getattr(SIMPLE, name)})
    for index, fault in enumerate(faults):
        for length_s in (round(fault.length_s / 2, 1), float(int(fault.length_s))):
            if 0 < length_s < fault.length_s:
                yield replace(scenario, faults=(
                    *faults[:index], replace(fault, length_s=length_s), *faults[index + 1:]))
        if fault.t != round(fault.t, 1):
            yield replace(scenario, faults=(
                *faults[:index], replace(fault, t=round(fault.t, 1)), *faults[index + 1:]))
