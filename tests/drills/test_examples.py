"""The examples as their READMEs tell to run them: the fenced commands, typed on this machine and on a real Slurm."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import in_long, long_only
from tests.localruns import LocalRun
from tests.runs import ALICE, ROOT, Installation, by_age
from tests.sandboxes import make_workdir
from tests.torchbin import make_torch_bin, needs_accelerate, needs_torch

SMALL = ("python3 -u train.py --steps 60 --save-every 20 --batch 2 --context 16 --step-time 0.1 --save-to checkpoints "
         '"${RESUME_ARGS[@]}"')


@dataclass(frozen=True)
class Place:
    """A folder with the examples in it, and whoever types there; `sandbox` is None for this machine without Slurm."""

    folder: Path
    env: dict[str, str]
    sandbox: Sandbox | None = None

    def start(self, script: str) -> subprocess.Popen[str]:
        """Lines of bash, begun."""
        argv = ["bash", "-e", "-c", script]
        if self.sandbox is not None:
            return self.sandbox.start(argv, cwd=self.folder, env=self.env)
        return subprocess.Popen(argv, cwd=self.folder, env=self.env, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, script: str) -> str:
        """What lines of bash print; they must all succeed."""
        process = self.start(script)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err
        return out

    def example(self, name: str, run_name: str) -> LocalRun:
        """The run of an example."""
        folder = self.folder / "examples" / name
        return LocalRun(folder, folder / "runs" / run_name, self.env)


def lay_out(folder: Path, safelaunch: list[str]) -> None:
    """The examples as in a checkout, and `safelaunch` in bin/."""
    outputs = shutil.ignore_patterns("checkpoints", "runs", "__pycache__")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=outputs)
    (folder / "bin").mkdir()
    (folder / "bin" / "safelaunch").write_text(f'#!/bin/bash\nexec {shlex.join(safelaunch)} "$@"\n')
    (folder / "bin" / "safelaunch").chmod(0o755)


@pytest.fixture
def on_this_machine(tmp_path: Path, local_env: dict[str, str]) -> Place:
    lay_out(tmp_path, [sys.executable, "-m", "safelaunch"])
    return Place(tmp_path, {**local_env, "PATH": f"{tmp_path}/bin:{local_env['PATH']}"})


@pytest.fixture
def on_slurm(sandbox: Sandbox, installation: Installation) -> Place:
    work = make_workdir(sandbox)
    lay_out(work, installation.argv)
    for path in [work / "examples", *(work / "examples").rglob("*")]:
        shutil.chown(path, ALICE)
    return Place(work, {**installation.env, "PATH": f"{work}/bin:/usr/local/bin:/usr/bin:/bin"}, sandbox)


THIS_MACHINE = "this machine"
SLURM = pytest.param("slurm", marks=[pytest.mark.slurm, pytest.mark.root])
# Each example where its README begins, in the short form; the other place needs the long one.
IN_LONG = {"slurm": pytest.param("slurm", marks=[*SLURM.marks, long_only]), THIS_MACHINE: in_long(THIS_MACHINE)}


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    found: Place = request.getfixturevalue("on_slurm" if request.param == "slurm" else "on_this_machine")
    yield found
    for run_dir in found.folder.glob("examples/*/runs/*"):
        for pid in LocalRun(found.folder, run_dir, found.env).pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def commands_of(name: str) -> list[str]:
    """The commands that the example's README tells to type; PyTorch is there already, or the test is skipped."""
    blocks = re.findall(r"(?ms)^```\n(.*?)^```", (ROOT / "examples" / name / "README.md").read_text())
    return [line for block in blocks for line in block.splitlines() if not line.startswith("pip install")]


def losses(log: str) -> dict[int, str]:
    # Two ranks' lines can meet in one.
    return {int(step): loss for step, loss in re.findall(r"step (\d+) loss (\d+\.\d+)", log)}


@pytest.mark.parametrize("place", [SLURM, IN_LONG[THIS_MACHINE]], indirect=True)
def test_minimal_is_killed_with_kill_9_and_goes_on_from_its_checkpoint(place: Place) -> None:
    said = place.run("\n".join(commands_of("minimal")))
    run = place.example("minimal", "train")
    assert re.search(r"(?m)^run +train", said), said

    run.wait_step(14)
    for pid in run.ranks("train.py"):
        os.kill(pid, signal.SIGKILL)

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("completed", 0), run.story()
    first, second = run.state().attempts
    assert first.ended == "failed" and second.resume_step in (10, 20, 30, 40), run.story()
    assert sorted(losses(run.log(2))) == list(range(second.resume_step + 1, 61))


@pytest.mark.parametrize("place", [THIS_MACHINE, IN_LONG["slurm"]], indirect=True)
def test_quickstart_shows_what_its_readme_promises(place: Place) -> None:
    said = place.run("\n".join(commands_of("quickstart")))
    run = place.example("quickstart", "quickstart")

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("completed", 0), run.story()
    at = [said.index(text) for text in ("half of checkpoints/step_000100.pt is written", "going on after step 80",
                                        "step 200 loss")]
    assert at == sorted(at)
    before, after = losses(run.log(1)), losses(run.log(2))
    assert {step: before[step] for step in range(81, 101)} == {step: after[step] for step in range(81, 101)}
    assert (run.folder / "checkpoints" / "step_000100.pt").exists(), "never deleted; the second attempt wrote it anew"
    assert "step_000100.pt is skipped: " in run.story()
    inside = place.run("cd examples/quickstart; safelaunch events; safelaunch status; rm -r checkpoints runs")
    assert "attempt 2" in inside and "completed" in inside


def test_quickstart_saves_and_ends_when_the_kill_switch_is_touched(on_this_machine: Place) -> None:
    on_this_machine.run("cd examples/quickstart; safelaunch submit train.yaml")
    run = on_this_machine.example("quickstart", "quickstart")
    run.wait_step(5)

    on_this_machine.run("cd examples/quickstart; touch runs/quickstart/control/kill")

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    last = max(losses(run.log(1)))
    assert f"the kill switch is touched: saved, ending after step {last}" in run.log(1)
    assert (run.folder / "checkpoints" / f"step_{last:06d}.pt").exists()


def lose_a_rank(place: Place, installation: Installation, name: str, *changes: str) -> str:
    """An example as its README tells to run it, with one rank killed after step 30: what was typed then prints."""
    bin_dir = make_torch_bin(place.folder / "torch", installation)
    small = shlex.join([f"setup=export PATH={bin_dir}:$PATH", "env.GLOO_SOCKET_IFNAME=lo", *changes])
    commands = [f"{line} {small}" if line.startswith("safelaunch submit") else line for line in commands_of(name)]
    typed = place.start("\n".join(commands))
    run = place.example(name, name)
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 30, 90, "step 30 was not reached")

    os.kill(by_age(run.ranks("train.py"))[-1], signal.SIGKILL)   # older is torchrun, which names the script, too

    said, noise = typed.communicate(timeout=300)
    assert typed.returncode == 0, said + noise
    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("completed", 0), run.story()
    first, second = run.state().attempts
    assert (first.job, first.nodes) == (second.job, second.nodes), run.story()
    resumed = second.resume_step or 0
    assert resumed in (20, 40), run.story()   # 40 where this test itself got no turn for so long
    before, after = losses(run.log(1)), losses(run.log(2))
    again = [step for step in before if step > resumed]
    assert again and [before[step] for step in again] == [after[step] for step in again]
    assert sorted(after) == list(range(resumed + 1, 61))
    return said


@long_only   # 30 s of processor time: its ranks and torchruns import PyTorch in both attempts
@needs_torch
@pytest.mark.torch
def test_ddp_loses_a_rank_and_goes_on_with_equal_losses(on_slurm: Place, installation: Installation) -> None:
    said = lose_a_rank(on_slurm, installation, "ddp", f"command={SMALL}", "slurm.nodes=2")
    assert "4 ranks, gloo" in said and "going on after step 20" in said, "logs -f shows both attempts"


@long_only
@needs_accelerate
@pytest.mark.torch
def test_accelerate_loses_a_rank_and_goes_on_with_equal_losses(on_slurm: Place, installation: Installation) -> None:
    small = ("python3 -u train.py --steps 60 --save-every 20 --step-time 0.1 --save-to checkpoints "
             '"${RESUME_ARGS[@]}"')
    said = lose_a_rank(on_slurm, installation, "accelerate", f"command={small}", "launch.nproc_per_node=1")
    assert "2 ranks, MULTI_CPU" in said and "going on after step 20" in said, said
    for node, what in enumerate(("step 60 loss", "rank 1 trains on cpu")):
        assert re.search(rf"(?m)^\[\w*{node}\w*:0\]: ?.*{what}", said), said
