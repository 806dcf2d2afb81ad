"""A training with Accelerate on the local cluster, with the callback and without: one rank of two is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.drills.proofs import long_only
from tests.frameworks.test_trainings import QUIET, losses
from tests.localruns import ROOT, LocalRun, SubmitLocal
from tests.torchbin import TORCHRUN, needs_accelerate

pytestmark = [pytest.mark.torch, needs_accelerate, long_only]
STEPS = 14
TRAIN = """\
import os, sys, time
import torch
from accelerate import Accelerator
try:
    from safelaunch_callbacks.accelerate import AccelerateLoop
except ImportError:
    AccelerateLoop = None

torch.manual_seed(1)
accelerator = Accelerator(cpu=True)
model, last = torch.nn.Linear(4, 1), int(sys.argv[1])
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
done = 0
if len(sys.argv) > 3:
    accelerator.load_state(sys.argv[4])
    done = int(sys.argv[4].rpartition("_")[2])
loop = AccelerateLoop(accelerator) if AccelerateLoop else None
for step in range(done + 1, last + 1):
    points = torch.randn(8, 4, generator=torch.Generator().manual_seed(step * 2 + accelerator.process_index))
    loss = ((model(points) - points.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    mean = accelerator.reduce(loss.detach(), "mean").item()
    accelerator.print(f"step {step} loss {mean:.6f}", flush=True)
    time.sleep(0.2)
    ends = bool(loop) and loop.step_done(step, mean)
    if ends or step % int(sys.argv[2]) == 0 or step == last:
        accelerator.save_state(f"ckpt/step_{step:08d}")
    if ends:
        print(f"rank {accelerator.process_index} was asked to end: saved, ending after step {step}", flush=True)
        break
accelerator.end_training()
"""


def submit(submit_local: SubmitLocal, folder: Path, callback: bool, steps: int, save_every: int) -> LocalRun:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "torchrun").write_text(TORCHRUN.format(python=sys.executable))
    (folder / "bin" / "torchrun").chmod(0o755)
    (folder / "train.py").write_text(TRAIN)
    words = [f"command={sys.executable} -u train.py {steps} {save_every} ${{RESUME_ARGS[@]}}",
             f"setup=export PATH={folder}/bin:$PATH", "launch.with=torchrun", "launch.nproc_per_node=2",
             "resume.format=hf", "resume.args=--resume {path}", *(f"env.{key}={value}" for key, value in QUIET.items()),
             f"env.PYTHONPATH={ROOT / 'progress' if callback else folder}"]
    return submit_local("", *words)


@pytest.mark.parametrize("callback", [True, False], ids=["callback", "plain"])
def test_killed_rank_is_resumed_with_the_losses_of_an_undisturbed_training(
    submit_local: SubmitLocal, tmp_path: Path, callback: bool
) -> None:
    undisturbed = submit(submit_local, tmp_path, callback, STEPS, 100)
    assert undisturbed.wait_end().how == "completed", undisturbed.story()
    for path in sorted((tmp_path / "ckpt").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    run = submit(submit_local, tmp_path, callback, STEPS, 4)
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 6, 120, "step 6 was not reached")

    os.kill(max(run.ranks("train.py")), signal.SIGKILL)

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("completed", 0), run.story()
    first, second = run.state().attempts
    assert (first.ended, second.ended) == ("failed", "completed") and second.resume_step in (4, 8), run.story()
    assert losses(run.log(1)) | losses(run.log(2)) == losses(undisturbed.log(1))
    assert ("safelaunch: step" in run.log(2)) == callback


def test_with_the_callback_stop_with_checkpoint_saves_at_once(submit_local: SubmitLocal, tmp_path: Path) -> None:
    run = submit(submit_local, tmp_path, True, 100_000, 1_000_000)
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 2, 120, "step 2 was not reached")
    run.type("stop", "--checkpoint", str(run.run_dir))
    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    assert run.log(1).count("was asked to end: saved") == 2 and len(list((tmp_path / "ckpt").iterdir())) == 1
