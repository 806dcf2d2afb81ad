"""A container's start as the script does it on a node, with programs that stand for runtimes (podman: a drill)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from safelaunch.launch.containers import ContainerPlan
from safelaunch.run.io.local import srun_words
from safelaunch.script.script import render
from tests.pure.script.test_script import TEMPLATE, plan_of

# What stands before the image is the runtime's own; the image sets variables of its own, enroot hands none on.
APPTAINER = """\
#!/bin/bash
echo "words: $*"
until [[ $1 == *.sif ]]; do shift; done
exec env NCCL_DEBUG=IMAGE PATH="$PATH" "${@:2}"
"""
ENROOT = """\
#!/bin/bash
until [[ $1 == *.sif ]]; do shift; done
exec env -i PATH=/usr/bin:/bin HOME=/image SAFELAUNCH_PACKED="$SAFELAUNCH_PACKED" "${@:2}"
"""
Attempt = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    """`attempt(command, runtime, key=value of container…)`: one attempt to its end."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "own.sif").touch()
    for name, text in {"apptainer": APPTAINER, "enroot": ENROOT}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    def go(command: str, runtime: str, setup: str = "", path: str = f"{tmp_path}/bin:", *, mounts: tuple[str, ...] = (),
           image: str = f"{tmp_path}/own.sif", workdir: str | None = None, cwd: Path = tmp_path,
           variables: tuple[tuple[str, str], ...] = (), **exported: str) -> subprocess.CompletedProcess[str]:
        box = ContainerPlan(runtime, image, mounts, workdir, (("MINE", "a  b"), ("NCCL_DEBUG", "INFO"), *variables))
        plan = plan_of(f"name: here\ncluster: local\nrun_dir: {tmp_path}/run\ncommand: 'true'\n")._replace(
            command=command, setup=setup, container=box, env=(("OUTER", "x\ny"),))
        (tmp_path / "run" / "control").mkdir(parents=True, exist_ok=True)
        (tmp_path / "job.sbatch").write_text(render(TEMPLATE, plan, python="/none", library=(), srun=srun_words()))
        env = {"PATH": path + os.environ["PATH"], "SLURM_JOB_NODELIST": "local0", "SLURM_JOB_ID": "77",
               "SAFELAUNCH_MASTER_ADDR": "127.0.0.1", **exported}
        return subprocess.run(["bash", str(tmp_path / "job.sbatch"), "attempt", "--load", "a b"], cwd=cwd, env=env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)

    yield go


@pytest.mark.parametrize("runtime", ["apptainer", "enroot"])
def test_setup_command_and_checkpoint_arrive_inside_with_variables_that_count_more_than_the_images(
        attempt: Attempt, tmp_path: Path, runtime: str) -> None:
    command = 'echo "<$LOCAL> <$MINE> <$OUTER> <$NCCL_DEBUG> <${RESUME_ARGS[*]}> <$MASTER_ADDR> $PWD"; env; exit 7'
    done = attempt(command, runtime, setup="LOCAL='set\nhere'")
    assert done.returncode == 7, done.stdout + done.stderr
    assert "]:<set\n" in done.stdout and "]:here> <a  b> <x\n" in done.stdout
    assert f"]:y> <INFO> <--load a b> <127.0.0.1> {tmp_path}\n" in done.stdout
    for name in ("SAFELAUNCH_IN_", "SAFELAUNCH_PACKED", "SAFELAUNCH_CONTAINER", "SAFELAUNCH_NEEDS"):
        assert f"]:{name}" not in done.stdout
    assert ("]:HOME=/image\n" in done.stdout) == (runtime == "enroot")


@pytest.mark.parametrize("runtime", ["apptainer", "enroot"])
def test_variables_with_the_scripts_own_words_for_names_arrive_too(attempt: Attempt, runtime: str) -> None:
    mine = dict.fromkeys(("words", "kind", "need", "here"), "mine")
    done = attempt("env", runtime, variables=(("name", "x"), ("path", "y")), **mine)
    said = {line.partition("]:")[2] for line in done.stdout.splitlines()}
    assert {"name=x", "path=y", *(f"{name}=mine" for name in mine)} <= said, done.stdout + done.stderr


def test_a_working_folder_with_an_ampersand_is_mounted_as_it_is_called(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "a&b").mkdir()
    done = attempt("pwd", "apptainer", cwd=tmp_path / "a&b")
    assert f"{tmp_path}/a&b" in done.stdout and "{cwd}" not in done.stdout, done.stdout + done.stderr


def test_the_working_folder_is_mounted_once(attempt: Attempt, tmp_path: Path) -> None:
    assert f"--bind={tmp_path}:{tmp_path} {tmp_path}/own.sif" in attempt("true", "apptainer").stdout
    assert attempt("true", "apptainer", mounts=(str(tmp_path),)).stdout.count("--bind=") == 1
    assert "]:/\n" in attempt("pwd", "apptainer", workdir="/").stdout


def test_what_is_missing_on_the_node_is_said_before_the_runtime_starts(attempt: Attempt) -> None:
    said = "safelaunch: container: the {} is missing on local0"
    for done, what in (
        (attempt("true", "apptainer", path=""), "runtime apptainer"),
        (attempt("true", "apptainer", image="/no/such.sif"), "image /no/such.sif"),
        (attempt("true", "apptainer", mounts=("/no/such folder:/in",)), "mount /no/such folder"),
    ):
        assert done.returncode == 78 and said.format(what) in done.stdout + done.stderr
        assert "words:" not in done.stdout
    done = attempt("true", "apptainer", workdir="/no/where")
    assert done.returncode == 78 and "the working directory /no/where is missing inside" in done.stdout
