"""`submit --here`: what a shell without a fitting job is told; nothing is made or sent then."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.slurm import slurmoutput
from tests.pure.script.test_script import MINIMAL, plan_of, rendered
from tests.tables import each

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-1]"}


@pytest.fixture(autouse=True)
def _a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SAFELAUNCH_ATTEMPT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text("cluster: slurm\ncommand: python3 train.py\nslurm: {nodes: 2}\n")


@pytest.mark.parametrize(("env", "words", "why", "way"), [
    ({}, [], "there is no Slurm job around this shell", "salloc --nodes="),
    ({"SLURM_JOB_ID": "7"}, [], "there is no Slurm job around this shell", "salloc"),
    (JOB, ["spare_nodes=1"], "job 7 has 2 nodes, and the run needs 3", "salloc --nodes="),
    ({**JOB, "SAFELAUNCH_ATTEMPT": "1"}, [], "inside of a run's attempt", "without --here"),
    (JOB, ["cluster=local"], "--here needs Slurm", "without --here"),
    (JOB, ["sweep.lr=[1, 2]", "env.LR=${lr}"], "this file has a sweep", "without --here"),
], ids=["no job", "half a job", "too few nodes", "in an attempt", "a local run", "a sweep"])
def test_a_job_that_does_not_fit_is_refused_with_the_way_out(
    env: dict[str, str], words: list[str], why: str, way: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    assert run(["submit", "--here", "train.yaml", *words]) == 2

    said = capsys.readouterr().err
    assert why in said and way in said
    assert not Path("runs").exists()


def test_the_job_script_says_without_a_job_what_to_type_and_starts_nothing(tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(rendered(plan_of(MINIMAL)))

    done = subprocess.run(["bash", str(script)], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
                          timeout=60, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"sbatch {script}" in done.stderr and "safelaunch submit --here" in done.stderr


@each(("state", "expected"), [
    ("CANCELLED", True), ("TIMEOUT", True), ("COMPLETING", True), ("RUNNING", False), ("SUSPENDED", False),
    ("A_NEW_WORD", False)])
def test_a_shells_job_is_over_only_in_clear_words(state: str, expected: bool) -> None:
    assert slurmoutput.is_over(f"JobId=7 JobName=g JobState={state} Reason=None") is expected


def test_no_answer_says_of_no_job_that_it_is_over() -> None:
    assert not slurmoutput.is_over("")
