"""container: ▸ the words that start each runtime. Golden for those that no test can run here (docs/containers.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.errors import ConfigError
from safelaunch.hangs import hang
from safelaunch.hangs.hang import Learned
from safelaunch.launch import containers
from safelaunch.node.guard.processes import RUNTIMES as PROCESSES_OF_THE_GUARD
from safelaunch.node.proctable import may_be_rank
from safelaunch.run.plan import Plan, of_config
from safelaunch.script.script import render
from tests.pure.launch.test_launchers import process
from tests.pure.script.test_script import TEMPLATE
from tests.tables import each

YAML = """\
name: box
run_dir: /runs/box
command: python train.py
slurm: {nodes: 2, gpus_per_node: 4, ntasks_per_node: 4}
launch: {with: srun}
env: {NCCL_DEBUG: INFO, PATH: /opt/bin}
resume: {dir: /ckpt, by: training}
container:
  runtime: apptainer
  image: /images/train.sif
  mounts: ["/data", "/scratch/me:/work:ro"]
  env: {HF_HOME: "/data/h f"}
"""
PODMAN = ["run", "--rm", "--replace", "--name=safelaunch-{task}", "--env-host", "--network=host", "--pid=host",
          "--ipc=host", "--uts=host", "--ulimit=host", "--sig-proxy=false", "--entrypoint="]
BOUND = ["/data:/data", "/scratch/me:/work:ro", "/runs/box:/runs/box", "/runs/box/control:/runs/box/control",
         "/ckpt:/ckpt", "{cwd}:{cwd}"]


def plan_of(*overrides: str) -> Plan:
    return of_config(resolve([ConfigLayer("file", "train.yaml", YAML)], overrides, {"HOME": "/h"}).config, "1a2b3c4d")


def value_of(plan: Plan, name: str) -> str:
    text = render(TEMPLATE, plan, python="/p", library=())
    return text.partition(f"\nSL_{name}=")[2].partition("\nSL_")[0].strip("'()")


def binds(flag: str, tail: str = "") -> list[str]:
    kept = [bound for bound in BOUND if bound != "/runs/box/control:/runs/box/control"]   # in /runs/box already
    return [f"{flag}={bound}{tail}" for bound in kept]


GOLDEN = {
    "apptainer": ["apptainer", "exec", "--nv", *binds("--bind"), "/images/train.sif"],
    "singularity": ["singularity", "exec", "--nv", *binds("--bind"), "/images/train.sif"],
    "podman": ["podman", *PODMAN, "--device=nvidia.com/gpu=all", *binds("--volume"), "--rootfs", "/images/train.sif"],
    "podman-hpc": ["podman-hpc", *PODMAN, "--gpu", *binds("--volume"), "--rootfs", "/images/train.sif"],
    "enroot": ["enroot", "start", "--rw", "--env", "SAFELAUNCH_PACKED",
               *(word.replace(":none:x-create=auto,rbind:none", ":none").replace(
                   ":ro:none:x-create=auto,rbind", ":none:x-create=auto,rbind,ro")
                 for word in binds("--mount", ":none:x-create=auto,rbind")), "/images/train.sif"],
}


@each("runtime", GOLDEN)
def test_each_runtime_is_started_with_the_words_of_its_manual(runtime: str) -> None:
    plan = plan_of(f"container.runtime={runtime}")
    assert value_of(plan, "CONTAINER").split("\n") == GOLDEN[runtime]
    assert "container" not in value_of(plan, "SRUN_EXTRA")


def test_pyxis_gets_flags_of_srun_and_the_run_folder() -> None:
    plan = plan_of("container.runtime=pyxis", "container.image=nvcr.io#nvidia/pytorch:24.05-py3",
                   "container.workdir=/work")
    assert value_of(plan, "CONTAINER") == "inside"
    assert value_of(plan, "SRUN_EXTRA").replace("'", "").split() == [
        "--container-image=nvcr.io#nvidia/pytorch:24.05-py3",
        "--container-mounts=/data:/data,/scratch/me:/work:ro,/runs/box:/runs/box,/ckpt:/ckpt",
        "--container-workdir=/work", "--container-env=NCCL_DEBUG,PATH"]


def test_no_value_of_a_variable_is_in_the_words_that_others_can_read() -> None:
    plan = plan_of("container.env.TOKEN=hush")
    assert "hush" not in value_of(plan, "CONTAINER") and "SAFELAUNCH_IN_TOKEN=hush" in value_of(plan, "ENV")
    inside = value_of(plan, "ENV")
    assert "SAFELAUNCH_IN_NCCL_DEBUG=INFO" in inside and "SAFELAUNCH_IN_PATH" not in inside


def test_an_image_of_a_registry_is_no_folder_and_its_start_is_never_learned() -> None:
    plan = plan_of("container.runtime=podman", "container.image=docker.io/library/train:1")
    assert "--rootfs" not in value_of(plan, "CONTAINER") and plan.hang.is_imported
    assert not plan_of().hang.is_imported
    seen = hang.begin(0.0, 3600.0, None)
    seen = hang.begin(0.0, 3600.0, None, replace(seen, learned={hang.START: Learned((5.0, 6.0), 2, 6.0)}))
    assert hang.patience_s(hang.begin(0.0, 3600.0, None, seen)) == hang.SECOND_START_S
    assert hang.patience_s(hang.begin(0.0, 3600.0, None, seen, is_imported=True)) == 3600.0


def test_flags_of_ones_own_replace_the_one_for_gpus() -> None:
    words = value_of(plan_of("container.extra=[--rocm]"), "CONTAINER").split("\n")
    assert "--nv" not in words and "--rocm" in words
    assert "--nv" not in value_of(plan_of("slurm.gpus_per_node=null"), "CONTAINER")


@each(("override", "said"), (
    ("container.runtime=docker", "expected apptainer, singularity"),
    ("container.image=null", "what to run the command in"),
    ("container.runtime=null", "needs container.runtime"), ("container.mounts=[data]", "expected /source"),
    ("container.mounts=['/a,b']", "expected /source"), ("container.mounts=[/a, /b:/a]", "the same target"),
    ("container.mounts=[/scratch:/ckpt]", "mount it under its own name: /scratch"),
    ("container.env={1x: a}", "no variable"), ("container.env={SAFELAUNCH_X: a}", "no variable"),
    ("container.gpu=true", "unknown key"),
))
def test_what_no_runtime_could_start_is_refused(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        plan_of(override)
    assert any(said in str(problem) for problem in error.value.problems), error.value.problems


def test_what_fits_only_some_runtimes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"enroot import -o image\.sqsh docker://a"):
        plan_of("container.runtime=enroot", "container.image=docker://a")
    with pytest.raises(ConfigError, match="a plugin of srun"):
        plan_of("container.runtime=pyxis", "cluster=local")


def test_no_process_of_a_runtime_is_a_rank_or_gets_the_trainings_signal() -> None:
    assert containers.RUNTIMES.keys() - {"pyxis"} <= set(PROCESSES_OF_THE_GUARD)
    for name in PROCESSES_OF_THE_GUARD:
        made = process([name, "run"])
        made.comm = name
        assert not may_be_rank(made), name
