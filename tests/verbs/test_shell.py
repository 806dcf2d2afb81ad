"""safelaunch shell: the command line that gets a person onto a node."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.sandbox.cluster import Sandbox
from tests.handmade import YAML, Made, make_run
from tests.runs import Submit


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return make_run(tmp_path / "bloom")


def test_the_step_runs_beside_the_training_and_takes_no_gpu(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.running()
    assert run(["shell", "bloom", "n2", "--print"]) == 0
    assert shlex.split(capsys.readouterr().out) == [
        "srun", "--jobid=12", "--job-name=safelaunch", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n2",
        "--gpus=0", "--gpus-per-node=0", "--gpus-per-task=0", "--pty", "bash"]


def test_without_gpus_none_are_named(bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_run(tmp_path / "cpu", YAML.replace(", gpus_per_node: 8", ""))
    made.running()
    assert run(["shell", str(made.dir), "--print"]) == 0
    assert "gpus" not in capsys.readouterr().out


def test_the_batch_host_of_the_newest_job_is_the_default(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.running()
    bloom.event("job_started", job="13", nodes=["n4", "n5"], batch_host="n4")
    assert run(["shell", "--print"]) == 0
    assert "--jobid=13" in (out := capsys.readouterr().out) and "--nodelist=n4" in out


@pytest.mark.parametrize(("state", "node", "said"), [
    ("running", "n9", "n9 is not a node of job 12, which has n[0-3]"),
    ("queued", "n0", "bloom has no nodes: it is queued"),
    ("ended", "n0", "it has no nodes: the run has completed"),
])
def test_where_there_is_nothing_to_get_into_it_says_so(
    bloom: Made, capsys: pytest.CaptureFixture[str], state: str, node: str, said: str
) -> None:
    if state == "queued":
        bloom.submitted()
    else:
        bloom.running()
    if state == "ended":
        bloom.completed()
    assert run(["shell", "bloom", node, "--print"]) == 2
    assert said in capsys.readouterr().err


def test_a_local_run_gets_a_shell_with_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bloom: Made
) -> None:
    monkeypatch.setenv("FROM_SUBMIT", "yes")
    made = make_run(tmp_path / "local", cluster="local")
    monkeypatch.delenv("FROM_SUBMIT")
    done = subprocess.run([sys.executable, "-m", "safelaunch", "shell", str(made.dir)], text=True, capture_output=True,
                          input='echo "$FROM_SUBMIT $SAFELAUNCH_RUN_ID $PWD"\n', timeout=120)
    assert f"yes 1a2b3c4d {tmp_path}" in done.stdout, done.stderr


def test_on_a_real_slurm_the_step_starts_beside_a_training_that_holds_all_gpus(
    sandbox: Sandbox, submit: Callable[[Sandbox], Submit]
) -> None:
    drill = submit(sandbox)("--steps 4000 --step-time 0.05", overrides=("slurm.gpus_per_node=8",))
    drill.wait_step(1)
    node = drill.state().attempts[0].nodes[1]

    printed = drill.as_user("shell", str(drill.run_dir), node, "--print")
    words = shlex.split(printed.stdout)
    done = sandbox.run([word for word in words if word not in ("--pty", "bash")] + ["hostname"], timeout_s=120)

    assert (done.returncode, done.stdout.strip()) == (0, node), done.stderr
    drill.as_user("stop", "--now", str(drill.run_dir))
    drill.wait_end()
