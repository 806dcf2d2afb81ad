"""The tests that hydra-core ships for launchers, which are those of hydra-submitit-launcher, too, run against ours.

All of them pass. They take a minute of processor time, so a test run takes some; SAFELAUNCH_LONG=1 takes all.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hydra.core.plugins import Plugins
from hydra.extra.pytest_plugin import hydra_restore_singletons as hydra_restore_singletons
from hydra.extra.pytest_plugin import hydra_sweep_runner as hydra_sweep_runner
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import IntegrationTestSuite, LauncherTestSuite

from tests.integrations.submitits import own_home as own_home

# Its own argument parser does not start there: the help of --shell-completion is no text.
pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="hydra-core 1.3 does not run on Python 3.14")

WORDS = ["hydra.launcher.wait=true", "hydra.launcher.cluster=local", "+hydra.launcher.restart.max_restarts=0"]
SHORT = ("test_sweep_2_jobs", "test_sweep_1_job_strict_and_bad_key", "test_not_sweeping_hydra_overrides",
         "test_custom_sweeper_run_workdir[subdir:custom_override_dirname")


@pytest.fixture
def tmpdir(own_home: Path, request: pytest.FixtureRequest) -> Path:
    """Where these tests work: below the home, so that their runs are ended."""
    if not request.node.name.startswith(SHORT) and os.environ.get("SAFELAUNCH_LONG") != "1":
        pytest.skip("takes a second or two; SAFELAUNCH_LONG=1 runs it")
    return own_home


@pytest.mark.parametrize(("launcher_name", "overrides"), [("safelaunch", WORDS)])
class TestLauncher(LauncherTestSuite):
    pass


@pytest.mark.parametrize(("task_launcher_cfg", "extra_flags"), [
    ({}, ["-m", "hydra/hydra_logging=disabled", "hydra/job_logging=disabled", "hydra/launcher=safelaunch", *WORDS])])
class TestPrograms(IntegrationTestSuite):
    pass


def test_both_launchers_are_found() -> None:
    found = {launcher.__name__ for launcher in Plugins.instance().discover(Launcher)}
    assert {"SafelaunchLauncher", "SlurmLauncher", "BasicLauncher"} <= found
