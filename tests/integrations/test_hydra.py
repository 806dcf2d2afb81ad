"""hydra/launcher=safelaunch on the local cluster: what a sweep leaves behind, and what becomes of its failures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from safelaunch.config.keys import NAME_PATTERN
from safelaunch.integrations.submitit import parameters
from safelaunch.run.io import runfolder
from safelaunch.verbs.logs.logfollow import wait_for_last_lines
from tests.integrations.submitits import own_home as own_home
from tests.tables import each

# Its own argument parser does not start there: the help of --shell-completion is no text.
pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="hydra-core 1.3 does not run on Python 3.14")

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = """\
import logging, os, pathlib, time
import hydra

@hydra.main(version_base=None)
def main(cfg):
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
    logging.getLogger("task").info("lr %s in attempt %s", cfg.lr, os.environ["SAFELAUNCH_ATTEMPT"])
    if cfg.lr == 2:
        raise ValueError("lr is too large")
    return cfg.lr

if __name__ == "__main__":
    main()
"""
WORDS = ["hydra/launcher=safelaunch", "hydra.launcher.cluster=local", "hydra.sweep.dir=sweep",
         "+hydra.launcher.restart.max_restarts=0"]


def sweep(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(PROGRAM)
    return subprocess.run([sys.executable, "train.py", "--multirun", *WORDS, *words], cwd=folder, text=True,
                          capture_output=True, timeout=300)


def find_runs(folder: Path) -> dict[str, runfolder.Run]:
    runs = map(runfolder.load, folder.glob("sweep/.safelaunch/runs/*"))
    return {run.plan.name: run for run in runs}


def wait_for_ends(runs: dict[str, runfolder.Run]) -> dict[str, str]:
    end_s = time.monotonic() + 120
    while None in (ends := {name: run.state().ended for name, run in runs.items()}).values():
        assert time.monotonic() < end_s
        time.sleep(0.05)
    for run in runs.values():   # the end of a log comes after the journal's
        wait_for_last_lines(run)
    return {name: str(ended.how) for name, ended in ends.items() if ended is not None}


def test_a_sweep_goes_on_without_the_program_that_has_submitted_it(own_home: Path) -> None:
    from omegaconf import OmegaConf  # 0.25 s, which each worker would spend that collects these tests

    done = sweep(own_home, "+lr=1,2")
    runs = find_runs(own_home)
    assert (done.returncode, sorted(runs)) == (0, ["train-0-lr1", "train-1-lr2"]), done.stderr
    second = runs["train-1-lr2"].plan.run_id
    assert "2 runs are submitted" in done.stdout and f"#1 : +lr=2 : run {second}" in done.stdout
    assert not any(run.state().ended for run in runs.values())
    (own_home / "go").touch()
    assert wait_for_ends(runs) == {"train-0-lr1": "completed", "train-1-lr2": "gave_up"}
    point = own_home / "sweep" / "1"
    assert (point / ".hydra" / "overrides.yaml").read_text() == "- +lr=2\n"
    assert (point / ".hydra" / "config.yaml").read_text() == "lr: 2\n"
    assert OmegaConf.load(point / ".hydra" / "hydra.yaml").hydra.job.id == runs["train-1-lr2"].plan.run_id
    assert "lr 2 in attempt 1" in (point / "train.log").read_text()
    assert "ValueError: lr is too large" in runs["train-1-lr2"].log_files[0].read_text()


def test_a_program_that_waits_shows_failures_and_ends_with_them(own_home: Path) -> None:
    (own_home / "go").touch()
    done = sweep(own_home, "hydra.launcher.wait=true", "+lr=2,3")
    assert done.returncode == 1
    assert "#0 has failed: the run has given up" in done.stdout and "safelaunch why" in done.stdout
    assert "ValueError: lr is too large" in done.stderr
    assert wait_for_ends(find_runs(own_home)) == {"train-0-lr2": "gave_up", "train-1-lr3": "completed"}


@pytest.mark.parametrize(("words", "why"), [
    (["hydra.launcher.spare_nodes=-1"], "spare_nodes: expected"),
    (["hydra.launcher.name=a b"], "name: "),
    (["hydra.launcher.nodes=four"], "could not be converted to Integer"),
    (["+hydra.launcher.teardown=x"], "teardown: put it behind"),
], ids=["value", "name", "type", "not-taken"])
def test_what_is_not_taken_is_refused_and_nothing_is_submitted(own_home: Path, words: list[str], why: str) -> None:
    done = sweep(own_home, "+lr=1", *words)
    assert done.returncode == 1 and why in done.stderr
    assert not list(own_home.glob("sweep/.safelaunch/*"))


@each(("jobs", "names"), [
    ([["+lr=1", "seed=2", "data=c4"], ["+lr=1", "seed=3", "data=c4"]], ["t-4-seed2", "t-5-seed3"]),
    ([["optim.lr=1e-4", "db=[1, 2]"], ["optim.lr=3e-4", "db=x/y"]], ["t-4-lr1e-4-db-1-2", "t-5-lr3e-4-dbx-y"]),
    ([["~db", "lr=1"]], ["t-4-db-lr1"]), ([["lr=1"], ["lr=1"]], ["t-4", "t-5"]), ([[]], ["t-4"]),
    ([["text=" + "a" * 90], ["text=b"]], ["t-4-text" + "a" * 56, "t-5-textb"]),
])
def test_a_run_is_named_by_what_differs_between_the_jobs(jobs: list[list[str]], names: list[str]) -> None:
    from hydra_plugins.safelaunch_launcher import run_names

    found = run_names("t", jobs, 4)
    assert found == names
    assert all(re.fullmatch(NAME_PATTERN, name) for name in (*found, *run_names("x" * 62, jobs, 4)))


def test_a_sweeper_that_needs_results_is_refused_without_wait(tmp_path: Path) -> None:
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    from hydra_plugins.safelaunch_launcher import SafelaunchLauncher

    launcher = SafelaunchLauncher(wait=False, folder=str(tmp_path), max_num_timeout=3, name="train")
    launcher.config = OmegaConf.create({"hydra": {"sweeper": {"_target_": "hydra_plugins.optuna.OptunaSweeper"}}})
    with pytest.raises(HydraException, match=r"needs hydra.launcher.wait=true. Nothing was submitted"):
        launcher.launch([["lr=1"]], 0)


def test_each_key_is_one_that_the_executor_takes() -> None:
    from hydra_plugins.safelaunch_launcher import GENERAL, SafelaunchLauncherConf

    keys = {one.name for one in fields(SafelaunchLauncherConf)}
    own = {"_target_", "wait", "folder", "max_num_timeout", "name"}
    assert keys - own - GENERAL <= parameters.VALID
    assert keys >= parameters.SECTIONS


def test_hydra_finds_the_launcher_without_safelaunch_and_submitit() -> None:
    """Every program that uses Hydra pays for what is imported there."""
    code = "import sys, hydra_plugins.safelaunch_launcher; print({'safelaunch', 'submitit'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SOURCE)}, text=True,
                          capture_output=True, timeout=60)
    assert done.stdout == "set()\n", done.stderr
