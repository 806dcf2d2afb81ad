"""The order of the tests, and two lanes for pytest-xdist's workers: most take tests that wait, some those that compute.

A drill waits for Slurm's daemons and for leases to run out: five drills at once leave half of two cores idle. So tests
that compute run beside them, with the processor time that they leave: at a lower priority, if root runs the tests.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScheduling

TESTS = Path(__file__).parent
# Where the long tests are, the longest first (140, 110, 105 s): what is begun last should be short, or one worker ends
# alone.
WAITING = ("drills/test_phases", "drills/test_watch", "drills/test_hangs", "drills/test_outages",
           "drills/test_clusters", "conformance/test_conformance", "drills/test_handover", "drills/test_via",
           "drills/test_examples", "drills",
           "sandbox")
COMPUTING = ("house", "test_package", "examples", "io", "templates", "verbs", "odd", "node", "supervisor",
             "simulation", "pure/why/test_patterns", "pure/why/test_rule_costs", "pure/hangs/test_hang_traces", "why")
TOGETHER = "house"   # rules that read one syntax tree of the whole source: one worker takes them all
COMPUTE = 3    # one worker of so many
STEP_BACK = 10   # nice


def turn_of(place: str) -> int:
    """When a test of this file, from the folder of the tests, has its turn: the sooner, the smaller."""
    order = (*WAITING, *COMPUTING)
    return next((turn for turn, start in enumerate(order) if place.startswith(start)), len(order))


def is_waiting(nodeid: str) -> bool:
    """Whether a test, by pytest's name for it, mostly waits."""
    return nodeid.startswith(tuple(f"{TESTS.name}/{start}" for start in WAITING))


def choose(pending: Sequence[int], names: Sequence[str], is_computing: bool) -> int:
    """Where in `pending` (indices into `names`) the next tests of a lane begin; at the front, if it has none left."""
    if not is_computing:
        return 0
    return next((place for place, index in enumerate(pending) if not is_waiting(names[index])), 0)


def together(pending: Sequence[int], names: Sequence[str]) -> int:
    """How many tests from the first one on belong together; 0 = it is one by itself."""
    alone = (place for place, index in enumerate(pending) if not names[index].startswith(f"{TESTS.name}/{TOGETHER}/"))
    return next(alone, len(pending))


class Lanes(LoadScheduling):
    """`--dist load`, with two lanes."""

    def _send_tests(self, node: Any, num: int) -> None:
        computing = max(1, len(self.nodes) // COMPUTE) if len(self.nodes) > 1 else 0
        first = choose(self.pending, self.collection or (), self.nodes.index(node) < computing)
        num = max(num, together(self.pending[first:], self.collection or ()))
        self.pending[:] = self.pending[first:first + num] + self.pending[:first] + self.pending[first + num:]
        super()._send_tests(node, num)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScheduling | None:
    return Lanes(config, log) if config.getvalue("dist") == "load" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long tests; `--dist load --maxschedchunk 1` hands them out in this order."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if "torch" in getattr(item, "fixturenames", ()):
        return len(WAITING) + len(COMPUTING) + 1   # each later fork of that worker takes nearly twice as long
    return turn_of(str(item.path.relative_to(TESTS)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that computes lets those that wait go first, with all that it starts; a sandbox may outlive it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    goes_first = is_waiting(item.nodeid) or item.get_closest_marker("slurm") is not None
    if goes_first or os.geteuid() != 0 or "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    os.setpriority(os.PRIO_PROCESS, 0, max(before, STEP_BACK))
    try:
        return (yield)
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
