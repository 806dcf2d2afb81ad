"""Registers the fixture files, so that every test can ask for what it needs by name."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import deadlines, ramdisk

# These machines are shared: how long an example takes says nothing of the code. The same examples in each run: others
# are for those who look for faults (SAFELAUNCH_LONG=1), and not for those who land their work. So are more examples.
IS_LONG = os.environ.get("SAFELAUNCH_LONG") == "1"
settings.register_profile("shared", deadline=None, derandomize=not IS_LONG, max_examples=200 if IS_LONG else 40,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# A run of the tests in the background ignores what Ctrl-C sends, one under nohup a hang-up, and so would all that the
# tests start. A handler is not inherited by what is executed; the run itself goes on ignoring the hang-up.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

# pytest's own folders, tmp_path among them.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(ramdisk.room()))

pytest_plugins = ["tests.groupterm", "tests.secondchance", "tests.lanes", "tests.sandboxes", "tests.frozen",
                  "tests.sharedfs", "tests.runs", "tests.localruns", "tests.torchbin"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests live until the end: looking for garbage among them took half of a worker's time to collect."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(20_000, 20, 20)   # a tenth of what the simulation takes


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """No test may leave its umask behind: files of later ones would be closed to the sandboxes' users."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def no_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """No deadline of a verb runs out in this process, nor in its forks."""
    deadlines.lift(monkeypatch.setattr)
