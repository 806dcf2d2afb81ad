"""`pytest -p tests.costs`: what each test takes of the processors.

A test's duration tells little beside others: some wait, some work. The sums by file tell what makes the whole slow.
Counted are its processes that have ended. As root on a machine with cgroup v1 all that it has started is counted, the
daemons of a sandbox included: there it is nine tenths of a drill.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

MOST_SHOWN = 60
_KEY = "processor_s"
_HIERARCHY = Path("/sys/fs/cgroup/cpuacct")
_GROUP = _HIERARCHY / f"pytest-costs-{os.getpid()}"


def pytest_configure() -> None:
    """A group of its own for this process, and all that it starts."""
    if (_HIERARCHY / "cpuacct.usage").exists() and os.geteuid() == 0:
        with suppress(OSError):   # in a container it cannot be written
            _GROUP.mkdir()
            (_GROUP / "tasks").write_text(str(os.getpid()))


def pytest_unconfigure() -> None:
    """What is left of a sandbox would hold it."""
    if _GROUP.exists():
        for pid in (_GROUP / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (_HIERARCHY / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            _GROUP.rmdir()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Of setup, call and teardown together."""
    start = _used_s()
    item.user_properties.append((_KEY, lambda: _used_s() - start))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None],
                              ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The figure as it stands: a report travels to the controller."""
    report = yield
    report.user_properties = [(key, value() if callable(value) else value) for key, value in report.user_properties]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The dearest tests and files."""
    tests, files = Counter[str](), Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for key, value in getattr(report, "user_properties", ()):
                if key == _KEY and report.when == "teardown":
                    tests[report.nodeid] += value
                    files[report.nodeid.partition("::")[0]] += value
    for what, counted in (("files", files), ("tests", tests)):
        terminalreporter.section(f"processor time by {what}: {counted.total():.0f} s")
        for name, seconds in counted.most_common(MOST_SHOWN):
            terminalreporter.line(f"{seconds:8.1f} s  {name}")


def _used_s() -> float:
    if _GROUP.exists():
        return int((_GROUP / "cpuacct.usage").read_text()) / 1e9
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
