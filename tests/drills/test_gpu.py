"""Runs on a real GPU: NCCL, a killed rank, a kernel's wrong access, an endless kernel, full memory, what others left.

Skipped without a GPU and cupy. With SAFELAUNCH_GPU_DRILLS=cpu they run with gloo, with errors that are only said, and
with what nvidia-smi said on an H100.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from safelaunch.run.io import runfolder
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.test_bootchecks import SKIPPED
from tests.drills.test_nodechecks import SKIP
from tests.runs import ALICE, ROOT, Drill, Installation, Submitter, environ_of
from tests.sandboxes import make_workdir, new_sandbox, reset
from tests.torchbin import make_torch_bin, needs_torch

Train = Callable[..., Drill]               # a command or fault, and what is submitted with it → the run
Ask = Callable[..., dict[str, Any]]        # words of a verb → what it says in JSON
IS_CPU = os.environ.get("SAFELAUNCH_GPU_DRILLS") == "cpu"


def has_gpu() -> bool:
    """Whether nvidia-smi names one."""
    try:
        said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.stdout.startswith("GPU 0")


pytestmark = [needs_torch, pytest.mark.torch,
              pytest.mark.skipif(not IS_CPU and (not has_gpu() or find_spec("cupy") is None),
                                 reason="takes an NVIDIA GPU, PyTorch for it, and cupy")]
SAID = ROOT / "tests/node/checks/said"
ON_GPU = ("slurm.gpus_per_node=1", "launch.nproc_per_node=1")
BOOT = ("checks.boot=true", f"checks.skip=[{SKIPPED}]")
STEPS, SAVE_EVERY = 60, 10
# What fails is a fault of the program: at one step of the first attempt.
TRAIN = """\
import datetime, os, signal, sys, time
import torch, torch.distributed as dist
fault, at, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
on_gpu, is_first = torch.cuda.is_available(), os.environ["SAFELAUNCH_ATTEMPT"] == "1"
device = "cuda" if on_gpu else "cpu"
dist.init_process_group("nccl" if on_gpu else "gloo", timeout=datetime.timedelta(hours=1))
total, kept = torch.ones(1 << 20, device=device), []
KERNELS = {
    "illegal": 'extern "C" __global__ void f(int *p) { p[1000000000000LL + threadIdx.x] = 1; }',
    "endless": 'extern "C" __global__ void f(volatile int *p) { while (!p[0]) ; }',
}
def launch(text):
    import cupy
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        cupy.RawKernel(text, "f")((1,), (32,), (cupy.zeros(10, dtype=cupy.int32),))
def fail():
    signal.signal(signal.SIGTERM, lambda *_: print("not heard beneath CUDA", flush=True))
    while fault == "full" and on_gpu:
        kept.append(torch.zeros(4 << 30, dtype=torch.uint8, device=device))
    if on_gpu:
        return launch(KERNELS[fault])
    while fault == "endless":
        pass
    words = {"full": "out of memory. Tried to allocate 4.00 GiB.",
             "illegal": "error: an illegal memory access was encountered"}
    raise RuntimeError("CUDA " + words[fault])
def train_step(step):
    if is_first and step == at:
        fail()
    dist.all_reduce(total)
    print(f"step {step} loss {total.mean().item()} rank 0", flush=True)
for step in range(1, last + 1):
    train_step(step)
    time.sleep(0.05)
dist.destroy_process_group()
"""
# What another user has left there: 70 GiB.
HOLD = """\
import time, torch
held = torch.zeros(70 << 30, dtype=torch.uint8, device="cuda")
print("held", flush=True)
time.sleep(600)
"""


def smi(folder: Path, how: str) -> None:
    """A nvidia-smi that says what it did on an H100, `idle` or `busy`."""
    shutil.copy(SAID / f"smi-580-{how}.xml", folder / "smi.xml")
    (folder / "nvidia-smi").write_text(f"#!/bin/bash\n[[ $1 == nvlink ]] || exec cat {folder}/smi.xml\n")
    (folder / "nvidia-smi").chmod(0o755)


@pytest.fixture(scope="module")
def nodes_of_one_gpu(slurm_here: None) -> Iterator[Sandbox]:
    """Two nodes with a GPU each, which is the same one. The second GPU of a node would be none."""
    made = new_sandbox(2, gpus=1)
    yield made
    made.down()


@pytest.fixture
def sandbox(nodes_of_one_gpu: Sandbox) -> Iterator[Sandbox]:
    yield nodes_of_one_gpu
    reset(nodes_of_one_gpu)


@pytest.fixture
def bin_dir(sandbox: Sandbox, installation: Installation) -> Path:
    """torchrun, python, and on a machine without a GPU a nvidia-smi."""
    folder = make_torch_bin(make_workdir(sandbox) / "bin", installation)
    (folder / "python").symlink_to("python3")
    if IS_CPU:
        smi(folder, "idle")
    folder.parent.chmod(0o755)
    return folder


@pytest.fixture
def train(sandbox: Sandbox, submit: Submitter, bin_dir: Path) -> Iterator[Train]:
    """`train(command, *overrides)`: a run of one rank on the GPU. SAFELAUNCH_KEEP_RUNS=FOLDER keeps its folder."""
    runs: list[Drill] = []

    def go(command: str, *overrides: str, **options: Any) -> Drill:
        extra = "setup: export CUBLAS_WORKSPACE_CONFIG=:4096:8\nenv: {GLOO_SOCKET_IFNAME: lo, NCCL_SOCKET_IFNAME: lo}\n"
        drill = submit(sandbox)(nodes=1, tasks=1, extra=extra, command=command, **options,
                                env={"PATH": f"{bin_dir}:{os.environ['PATH']}"},
                                overrides=("launch.with=torchrun", *ON_GPU, *overrides))
        runs.append(drill)
        return drill

    yield go
    for number, drill in enumerate(runs):
        if kept := os.environ.get("SAFELAUNCH_KEEP_RUNS"):
            name = os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split(" ")[0]
            shutil.copytree(drill.run_dir, f"{kept}/{name[:90]}-{number}", dirs_exist_ok=True)
            Path(f"{kept}/{name[:90]}-{number}.story").write_text(drill.story())


@pytest.fixture
def fails(sandbox: Sandbox, train: Train) -> Train:
    """`fails(fault, at, last, *overrides)`: a run whose first attempt fails so at a step."""
    def go(fault: str, at: int, last: int, *overrides: str, **options: Any) -> Drill:
        work = make_workdir(sandbox)
        (work / "train.py").write_text(TRAIN)
        return train(f"python3 -u train.py {fault} {at} {last}", *overrides, folder=work, **options)
    return go


@pytest.fixture
def ask(sandbox: Sandbox, installation: Installation, bin_dir: Path) -> Ask:
    """`ask("nodes", …)`: what that says in JSON."""
    def go(*words: str) -> dict[str, Any]:
        env = {**installation.env, "PATH": f"{bin_dir}:{os.environ['PATH']}"}
        done = sandbox.run([*installation.argv, *words], user=ALICE, cwd=bin_dir.parent, env=env, timeout_s=200)
        assert done.returncode in (0, 13), done
        said: dict[str, Any] = json.loads(done.stdout)
        if kept := os.environ.get("SAFELAUNCH_KEEP_RUNS"):
            Path(kept, f"{'-'.join(words[:5]).replace('/', '_')}.json").write_text(done.stdout)
        return said
    return go


def checks_of(said: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """name → (outcome, why) of the only node that was asked."""
    (node,) = said["nodes"]
    return {row["name"]: (row["outcome"], row["why"]) for row in node["checks"]}


def left_on_gpu(ask: Ask) -> tuple[str, str]:
    """What the check says of processes on the GPU."""
    return checks_of(ask("nodes", "check", "--local", "--json", "--skip", "mount"))["gpu_leftovers"]


def kinds(drill: Drill) -> set[str]:
    """Of the evidence against nodes."""
    return {str(event.data["kind"]) for event in drill.events("node_suspected")}


def losses(drill: Drill, attempt: int) -> dict[int, str]:
    """step → loss, as it was printed."""
    return {int(step): loss for step, loss in re.findall(r"step (\d+) loss (\S+)", drill.log(attempt))}


def test_a_killed_rank_is_resumed_and_prints_the_losses_of_an_undisturbed_run(sandbox: Sandbox, train: Train) -> None:
    def start(*overrides: str) -> Drill:
        work = make_workdir(sandbox)
        for file in (ROOT / "examples/ddp").glob("*.*"):
            shutil.copy(file, work)
        return train(f"python3 -u train.py --steps {STEPS} --save-every {SAVE_EVERY} --step-time 0.1 --save-to ckpt "
                     '"${RESUME_ARGS[@]}"', "resume.args=--resume {path}", *overrides, folder=work)

    whole = start(*BOOT)
    whole.wait_step(SAVE_EVERY, timeout_s=120)
    shown = whole.as_user("stacks", str(whole.run_dir))
    whole.noise.append(shown.stdout)
    state = whole.wait_end(120)
    assert state.ended and (state.ended.how, len(state.attempts)) == ("completed", 1), whole.story()
    said = checks_of(json.loads((whole.run_dir / runfolder.attempt_folder(1) / "checks.json").read_text()))
    assert said["gpu_count"] == ("ok", "1 GPU") and said["gpu_leftovers"][0] == "ok", said
    assert said["gpu_model"][0] == "ok" and said["gpu_driver"][0] == "ok", said
    assert ("gloo" if IS_CPU else "nccl") in whole.log(1)
    expected = losses(whole, 1)
    assert len(expected) == STEPS and all(math.isfinite(float(loss)) for loss in expected.values())

    broken = start()
    broken.wait_step(SAVE_EVERY * 2 + 5, timeout_s=120)
    (rank,) = [pid for pid in broken.pids("--save-to") if b"LOCAL_RANK=" in environ_of(pid)]
    os.kill(rank, signal.SIGKILL)
    state = broken.wait_end(120)
    assert state.ended and (state.ended.how, len(state.attempts)) == ("completed", 2), broken.story()
    resumed = state.attempts[1].resume_step
    assert resumed and resumed >= SAVE_EVERY * 2, broken.story()
    assert losses(broken, 2) == {step: loss for step, loss in expected.items() if step > resumed}
    assert "train.py" in shown.stdout, shown


@pytest.mark.parametrize("debug", [(), ("--debug=cuda",)], ids=["", "launch-blocking"])
def test_a_wrong_access_of_a_kernel_is_restarted_and_blames_no_gpu(
    fails: Train, ask: Ask, debug: tuple[str, ...]
) -> None:
    drill = fails("illegal", 20, 40, *BOOT, *debug)
    found = drill.wait_event("verdict", timeout_s=120)
    state = drill.wait_end(120)

    assert found.data["category"] == "native_crash", drill.story()
    assert found.data["summary"] == "a GPU kernel touched memory it may not touch", drill.story()
    assert state.ended and (state.ended.how, len(state.attempts)) == ("completed", 2), drill.story()
    assert not drill.events("checks_failed") and kinds(drill) <= {"first_to_fail"}, drill.story()
    assert state.attempts[0].nodes == state.attempts[1].nodes
    said = checks_of(ask("nodes", "check", "--local", "--json", "--skip", "mount"))
    assert said["gpu_xid"][0] != "failed" and said["gpu_leftovers"] == ("ok", "none"), said


def test_an_endless_kernel_is_a_hang_whose_rank_is_killed_and_leaves_nothing(
    fails: Train, ask: Ask
) -> None:
    drill = fails("endless", 60, 90, "hang.no_progress=10s")
    found = drill.wait_event("verdict", timeout_s=240)
    state = drill.wait_end(240)

    assert found.data["category"] == "hang", drill.story()
    assert "rank 0 on n0" in found.data["summary"], found.data["summary"]
    assert state.ended and (state.ended.how, len(state.attempts)) == ("completed", 2), drill.story()
    assert kinds(drill) == set(), drill.story()
    assert left_on_gpu(ask) == ("ok", "none")


def test_a_full_gpu_is_named_and_blames_no_node(fails: Train) -> None:
    drill = fails("full", 3, 10)
    found = drill.wait_event("verdict", timeout_s=120)
    state = drill.wait_end(120)

    assert found.data["category"] == "cuda_oom", drill.story()
    assert state.ended and len(state.attempts) <= 2 and not kinds(drill), drill.story()


def test_what_another_user_left_on_the_gpu_ends_the_run_before_its_first_step(
    sandbox: Sandbox, fails: Train, bin_dir: Path
) -> None:
    if IS_CPU:
        smi(bin_dir, "busy")
    else:
        other = sandbox.start([str(bin_dir / "python3"), "-c", HOLD], user="sl-bob")
        assert other.stdout and other.stdout.readline() == "held\n"
    drill = fails("none", 0, 10, *BOOT, "slurm.nodelist=n0", wait_started=False)
    state = drill.wait_end(120)

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("gave_up", 13), drill.story()
    assert not state.attempts and "gpu_leftovers" in state.ended.why, state.ended.why


def test_nodes_of_a_cluster_are_checked_and_measured_on_their_gpu(ask: Ask) -> None:
    job = ("--", "--partition=main", "--gpus-per-node=1", "--exclusive")
    for level in ("full", "isolate"):
        said = checks_of(ask("nodes", "check", "n0", "--level", level, "--json", *SKIP.split(), *job))
        assert said["gpu_count"] == ("ok", "1 GPU"), said
        if level == "isolate" and not IS_CPU:
            assert said["gpu_alone"] == ("ok", "1 GPU right, each GPU alone"), said
    (row,) = ask("nodes", "bench", "n0", "--json", "--repeats", "3", *job)["nodes"]
    rates = {one["name"]: one for one in row["measurements"]}
    assert rates["matmul"]["outcome"] == "ok", row
    assert rates["gpu_memory"]["outcome"] == ("skipped" if IS_CPU else "ok"), row
