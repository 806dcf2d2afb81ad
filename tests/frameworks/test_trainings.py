"""The examples with Transformers' and Lightning's Trainer on the local cluster, with the callback and without.

`make test-frameworks` installs both and runs this; `make test` skips it where they are missing.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.localruns import ROOT, LocalRun, SubmitLocal
from tests.torchbin import TORCHRUN

FORMATS = {"hf-trainer": ("transformers", "hf"), "lightning": ("lightning", "lightning")}   # package, resume.format
each = pytest.mark.parametrize("name", FORMATS)
pytestmark = [pytest.mark.torch]
SMALL = "--steps 14 --save-every 4 --rows 128 --batch 2"
LONG = "--steps 100000 --rows 128 --batch 2 --step-time 0.05"
QUIET = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}


def needs(name: str) -> None:
    if find_spec(FORMATS[name][0]) is None:
        pytest.skip(f"{FORMATS[name][0]} is not installed: make test-frameworks")


def submit(submit_local: SubmitLocal, folder: Path, name: str, flags: str, callback: bool = True) -> LocalRun:
    """The example, submitted; two ranks by torchrun."""
    needs(name)
    (folder / "bin").mkdir()
    (folder / "bin" / "torchrun").write_text(TORCHRUN.format(python=sys.executable))
    (folder / "bin" / "torchrun").chmod(0o755)
    train = f"{sys.executable} -u {ROOT}/examples/{name}/train.py {flags} --save-to ckpt"
    words = [f"command={train} ${{RESUME_ARGS[@]}}", f"setup=export PATH={folder}/bin:$PATH", "launch.with=torchrun",
             "launch.nproc_per_node=2", f"resume.format={FORMATS[name][1]}", "resume.args=--resume {path}",
             *(f"env.{key}={value}" for key, value in QUIET.items()),
             f"env.PYTHONPATH={ROOT / 'progress' if callback else folder}"]
    return submit_local("", *words)


def losses(log: str) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"(?<!safelaunch: )step (\d+) loss (\S+)", log)}


@cache
def undisturbed(name: str) -> dict[int, str]:
    """The losses of two ranks outside a run, with the callback, which does nothing there."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("SAFELAUNCH_")}
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
             f"{ROOT}/examples/{name}/train.py", *SMALL.split()], cwd=folder, timeout=240, text=True,
            env={**env, **QUIET, "PYTHONPATH": f"{ROOT}/progress"}, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "safelaunch: step" not in done.stdout
    return losses(done.stdout)


@pytest.mark.parametrize("callback", [True, False], ids=["callback", "plain"])
@each
def test_rank_that_is_killed_is_resumed_with_the_losses_of_an_undisturbed_training(
    submit_local: SubmitLocal, tmp_path: Path, name: str, callback: bool
) -> None:
    run = submit(submit_local, tmp_path, name, f"{SMALL} --step-time 0.3", callback)
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 6, 120, "step 6 was not reached")

    os.kill(max(run.ranks("train.py")), signal.SIGKILL)

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("completed", 0), run.story()
    first, second = run.state().attempts
    assert (first.ended, second.ended) == ("failed", "completed"), run.story()
    assert second.resume_step in (4, 8), run.story()
    after = losses(run.log(2))
    assert sorted(after) == list(range(second.resume_step + 1, 15))
    assert losses(run.log(1)) | after == undisturbed(name)
    assert ("safelaunch: step" in run.log(2)) == callback


@each
def test_stop_with_checkpoint_saves_at_once_and_all_ranks_end_at_the_same_step(
    submit_local: SubmitLocal, tmp_path: Path, name: str
) -> None:
    run = submit(submit_local, tmp_path, name, f"{LONG} --save-every 1000000")
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 2, 120, "step 2 was not reached")

    run.type("stop", "--checkpoint", str(run.run_dir))

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    assert run.events("attempt_ended")[0].data["exit_code"] == 0, run.log(1)
    steps = re.findall(r"rank \d was asked to end: saved, ending after step (\d+)", run.log(1))
    assert len(steps) == 2 and len(set(steps)) == 1, run.log(1)
    said = run.type("checkpoints", str(run.run_dir)).stdout
    assert re.search(rf"(?m)^complete +{steps[0]} ", said), said


@each
def test_without_the_callback_stop_with_checkpoint_ends_at_the_next_one(
    submit_local: SubmitLocal, tmp_path: Path, name: str
) -> None:
    run = submit(submit_local, tmp_path, name, f"{LONG} --save-every 40", callback=False)
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 2, 120, "step 2 was not reached")

    run.type("stop", "--checkpoint", str(run.run_dir))

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    step = re.search(r"(?m)^complete +(\d+) ", run.type("checkpoints", str(run.run_dir)).stdout)
    assert step and int(step[1]) % 40 == 0, run.story()
    assert "was asked to end" not in run.log(1)
