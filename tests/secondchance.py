"""Failed tests that may be run once more, alone: `pytest --second-chance FILE`, then `pytest -n 0 @FILE`.

Seven drills at once on two cores can starve a bound in seconds, which says nothing of the code. So where all tests that
failed are drills, need a real Slurm or are marked as `timed`, and they are few, their names go to FILE and the run ends
with 0. Whoever asked for that runs them again with nothing beside them, and only what fails then has failed. Any other
failure ends the run with 1, and FILE stays empty.
"""

from __future__ import annotations

from pathlib import Path

import pytest

MOST = 5   # more is no bad luck


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--second-chance", metavar="FILE", type=Path,
                     help="end with 0 where only drills, tests with Slurm or timed ones failed; FILE names them")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("second_chance")
    if file is not None and not hasattr(config, "workerinput"):   # xdist's workers hear all of it too
        config.pluginmanager.register(SecondChance(file))


class SecondChance:
    """Notes what fails, and judges it at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._failed: dict[str, bool] = {}
        file.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = (
                "slurm" in report.keywords or "timed" in report.keywords or "drills/" in report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED and self._is_worth_it():
            self._file.write_text("".join(f"{name}\n" for name in self._failed))
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._file.read_text():
            terminalreporter.section("to be run once more, alone")
            terminalreporter.write("".join(f"failed beside others: {name}\n" for name in self._failed))

    def _is_worth_it(self) -> bool:
        return 0 < len(self._failed) <= MOST and all(self._failed.values())
