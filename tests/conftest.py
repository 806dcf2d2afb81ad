"""Registers the fixture files, so that every test can ask for what it needs by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import ramdisk

# These machines are shared: how long an example takes says nothing of the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# A run of the tests in the background ignores what Ctrl-C sends, one under nohup a hang-up, and so would all that the
# tests start. A handler is not inherited by what is executed; the run itself goes on ignoring the hang-up.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

# pytest's own folders, tmp_path among them.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(ramdisk.room()))

TESTS = Path(__file__).parent

pytest_plugins = ["tests.secondchance", "tests.sandboxes", "tests.frozen", "tests.sharedfs", "tests.runs",
                  "tests.localruns", "tests.torchbin"]


# Where the long tests are, the longest first (140, 110, 105 s): what is begun last should be short, or one worker ends
# alone. Those that wait come before those that compute.
LONG = ("drills/test_phases", "drills/test_watch", "drills/test_hangs", "drills/test_outages", "drills/test_clusters",
        "drills/test_handover", "drills/test_via", "drills/test_examples", "drills", "examples", "test_package",
        "sandbox", "adapters", "templates", "commands", "odd", "node", "supervisor", "simulation",
        "core/why/test_patterns", "core/why/test_rule_costs", "core/hangs/test_hang_traces", "why")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long tests; `--dist load --maxschedchunk 1` hands them out in this order."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if "torch" in getattr(item, "fixturenames", ()):
        return len(LONG) + 1   # each later fork of that worker takes nearly twice as long
    place = str(item.path.relative_to(TESTS))
    return next((turn for turn, start in enumerate(LONG) if place.startswith(start)), len(LONG))


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """No test may leave its umask behind: files of later ones would be closed to the sandboxes' users."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
