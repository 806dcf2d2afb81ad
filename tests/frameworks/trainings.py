"""The examples of each framework, two ranks each: how one is submitted locally, and what it trains undisturbed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.localruns import ROOT, LocalRun, SubmitLocal
from tests.torchbin import ACCELERATE, PYTHON3, TORCHRUN


class Framework(NamedTuple):
    """An example's package, its resume.format, launch.with, and the flags that make it small."""

    package: str
    format: str
    launcher: str
    flags: str = "--batch 2"


FRAMEWORKS = {
    "hf-trainer": Framework("transformers", "hf", "torchrun", "--batch 2 --rows 128"),
    "accelerate": Framework("accelerate", "hf", "accelerate", "--batch 2 --rows 128"),
    "lightning": Framework("lightning", "lightning", "torchrun", "--batch 2 --rows 128"),
    "deepspeed": Framework("deepspeed", "deepspeed", "deepspeed"),
    "jax": Framework("jax", "orbax", "jax"),
}
CALLBACKS = ("hf-trainer", "lightning", "accelerate")   # whose examples take safelaunch's callback, where there is one
STEPS, SAVE_EVERY = 14, 4
SMALL = f"--steps {STEPS} --save-every {SAVE_EVERY}"
LONG = "--steps 100000 --step-time 0.05"
# DeepSpeed compiles an extension at its first start on a machine without GPUs: once for all tests.
QUIET = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1",
         "JAX_PLATFORMS": "cpu", "DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": f"{sys.prefix}/torch_extensions"}


def needs(package: str) -> None:
    """Skip the test where a package is missing."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: make test-frameworks")


def make_bin(folder: Path) -> Path:
    """A new folder with the programs that launchers call, of the interpreter that runs the tests."""
    folder.mkdir(parents=True)
    for name, text in (("torchrun", TORCHRUN), ("accelerate", ACCELERATE), ("python3", PYTHON3)):
        (folder / name).write_text(text.format(python=sys.executable))
        (folder / name).chmod(0o755)
    return folder


def submit(
    submit_local: SubmitLocal, folder: Path, name: str, flags: str, *more: str, callback: bool = True
) -> LocalRun:
    """The example, submitted; modules in `folder` are on its path."""
    row = FRAMEWORKS[name]
    needs(row.package)
    path = f"{make_bin(folder / 'bin')}:{sys.prefix}/bin"
    train = f"{sys.executable} -u {ROOT}/examples/{name}/train.py {flags} {row.flags} --save-to ckpt"
    ranks = [] if row.launcher == "jax" else ["launch.nproc_per_node=2"]
    words = [f"command={train} ${{RESUME_ARGS[@]}}", f"setup=export PATH={path}:$PATH", f"launch.with={row.launcher}",
             *ranks, f"resume.format={row.format}", "resume.args=--resume {path}",
             *(f"env.{key}={value}" for key, value in QUIET.items()),
             f"env.PYTHONPATH={ROOT / 'progress'}:{folder}" if callback else f"env.PYTHONPATH={folder}"]
    return submit_local("", *words, *more, tasks=1 if ranks else 2)


def losses(log: str) -> dict[int, str]:
    """step → loss, as the examples print it."""
    return {int(step): loss for step, loss in re.findall(r"(?<!safelaunch: )step (\d+) loss (\d+\.\d+)", log)}


@cache
def undisturbed(name: str) -> str:
    """What two ranks of an example print outside a run, with the callback, which does nothing there."""
    needs(FRAMEWORKS[name].package)
    train = [f"{ROOT}/examples/{name}/train.py", *SMALL.split(), *FRAMEWORKS[name].flags.split()]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SAFELAUNCH_", "SLURM_"))}
    env = {**kept, **QUIET, "PYTHONPATH": f"{ROOT}/progress", "PATH": f"{sys.prefix}/bin:{kept['PATH']}"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    started: list[tuple[list[str], dict[str, str]]] = [(torchrun, {})]
    if name == "jax":
        started = [([], _jax_env(0)), ([], _jax_env(1))]
    with tempfile.TemporaryDirectory() as folder:
        processes = [subprocess.Popen([sys.executable, *words, *train], cwd=folder, stdout=subprocess.PIPE, text=True,
                                      env={**env, **more}) for words, more in started]
        said = [process.communicate(timeout=240)[0] for process in processes]
    assert not any(process.returncode for process in processes), said
    return "\n".join(said)


def _jax_env(number: int) -> dict[str, str]:
    """What JAX reads of Slurm; a port of this process' own."""
    return {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{20000 + os.getpid() % 9999}", "SLURM_JOB_ID": "1",
            "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "localhost", "SLURM_JOB_NODELIST": "localhost",
            "SLURM_NODEID": "0", "SLURM_PROCID": str(number), "SLURM_LOCALID": str(number), "SLURM_STEP_NUM_TASKS": "2"}
