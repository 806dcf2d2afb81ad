"""The examples without a cluster: their configs pass the check, their READMEs tell the truth, their trainers resume."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.checkpoints.io.checkpoints import find
from safelaunch.checkpoints.resume import resume_args
from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.run.plan import of_config
from tests.torchbin import Ranks, needs_accelerate, needs_torch

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/train.yaml"))
each = pytest.mark.parametrize("name", NAMES)
LOSS = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)


def config_of(name: str) -> dict[str, object]:
    text = (EXAMPLES / name / "train.yaml").read_text()
    return resolve([ConfigLayer("file", "train.yaml", text)], [], {}, base_dir="/somewhere").config


def clean_env(**more: object) -> dict[str, str]:
    """The environment without marks of a launcher; torch stays on the CPU and on loopback."""
    marks = ("SLURM_", "SAFELAUNCH_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(marks)}
    quiet = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
    quiet["PYTHONDONTWRITEBYTECODE"] = "1"
    # Unbuffered, a print is two writes, and the lines of two ranks that share a pipe meet in one.
    kept.pop("PYTHONUNBUFFERED", None)
    return kept | quiet | {key: str(value) for key, value in more.items()}


def run(folder: Path, *argv: object, **env: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    return subprocess.run(words, cwd=folder, env=clean_env(**env), capture_output=True, text=True, timeout=600)


def losses(said: str) -> dict[int, str]:
    return {int(step): loss for step, loss in LOSS.findall(said)}


def test_all_are_there() -> None:
    assert NAMES == ["accelerate", "ddp", "deepspeed", "hf-trainer", "jax", "lightning", "minimal", "quickstart",
                     "stories"]


@each
def test_its_config_passes_the_check(name: str) -> None:
    plan = of_config(config_of(name), "example")
    assert plan.resume.dir == "checkpoints"


def test_minimal_is_three_lines() -> None:
    assert len((EXAMPLES / "minimal" / "train.yaml").read_text().splitlines()) == 3


@each
def test_its_command_names_a_file_that_is_there_and_takes_the_resume_words_whole(name: str) -> None:
    command = str(config_of(name)["command"])
    script = next(word for word in command.split() if word.endswith(".py"))
    compile((EXAMPLES / name / script).read_text(), script, "exec")
    # ${RESUME_ARGS} alone would be the array's first word only.
    assert '"${RESUME_ARGS[@]}"' in command


@each
def test_every_file_that_its_readme_links_to_is_there_and_it_tells_how_to_start(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (EXAMPLES / name / target).exists(), target
    assert f"cd examples/{name}\nsafelaunch submit train.yaml" in text


@each
def test_its_outputs_are_ignored_by_git(name: str) -> None:
    assert {"checkpoints/", "runs/"} <= set((EXAMPLES / name / ".gitignore").read_text().split())


def resume_words(name: str, folder: Path) -> tuple[str, ...]:
    """What safelaunch would hand to the next attempt."""
    plan = of_config(config_of(name), "example").resume
    best = find(str(folder / "checkpoints"), plan.format, plan.pattern).best
    assert best is not None
    return resume_args(plan.args, best)


def test_minimal_goes_on_where_it_was(tmp_path: Path) -> None:
    train = EXAMPLES / "minimal" / "train.py"
    whole = losses(run(tmp_path, sys.executable, train, "--step-time", 0).stdout)
    for late in tmp_path.glob("checkpoints/step_[456]0.json"):
        late.unlink()
    again = run(tmp_path, sys.executable, train, "--step-time", 0, *resume_words("minimal", tmp_path))
    assert losses(again.stdout) == {step: loss for step, loss in whole.items() if step > 30}


def test_quickstart_dies_once_in_the_middle_of_a_save_and_then_goes_on_with_the_same_losses(tmp_path: Path) -> None:
    train = EXAMPLES / "quickstart" / "train.py"
    undisturbed = run(tmp_path, sys.executable, train, "--step-time", 0, "--crash-at", 0, "--save-to", "elsewhere")
    first = run(tmp_path, sys.executable, train, "--step-time", 0)
    assert first.returncode == -signal.SIGKILL
    assert max(losses(first.stdout)) == 100
    words = resume_words("quickstart", tmp_path)
    assert words == ("--resume", str(tmp_path / "checkpoints" / "step_000080.pt"))
    second = run(tmp_path, sys.executable, train, "--step-time", 0, *words, SAFELAUNCH_ATTEMPT=2)
    assert second.returncode == 0
    assert losses(first.stdout) | losses(second.stdout) == losses(undisturbed.stdout)
    assert float(losses(second.stdout)[200]) < 0.2 * float(losses(first.stdout)[1])


def test_quickstart_ends_by_itself_when_the_kill_switch_is_touched(tmp_path: Path) -> None:
    (tmp_path / "kill").touch()
    train = EXAMPLES / "quickstart" / "train.py"
    ended = run(tmp_path, sys.executable, train, SAFELAUNCH_KILL_FILE=tmp_path / "kill")
    assert ended.returncode == 0
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000001.pt"]


@pytest.mark.torch
@needs_torch
def test_ddp_trains_on_cpus_and_resumes_with_equal_losses_until_the_kill_switch_is_touched(
    tmp_path: Path, torch_ranks: Ranks
) -> None:
    train = (EXAMPLES / "ddp" / "train.py", "--steps", 6, "--save-every", 2, "--batch", 2, "--context", 16)
    first = torch_ranks.run(tmp_path, *train, count=2)
    assert first.codes == [0, 0], first.err
    assert list(losses(first.out)) == [1, 2, 3, 4, 5, 6]
    newest = tmp_path / "checkpoints" / "step_00000006.pt"
    os.truncate(newest, newest.stat().st_size // 2)
    words = resume_words("ddp", tmp_path)
    assert words == ("--resume", str(tmp_path / "checkpoints" / "step_00000004.pt"))
    (tmp_path / "kill").touch()
    second = torch_ranks.run(tmp_path, *train, *words, count=2, SAFELAUNCH_KILL_FILE=tmp_path / "kill")
    assert second.codes == [0, 0], second.err
    assert losses(second.out) == {5: losses(first.out)[5]}
    assert second.out.count("was asked to end: saved, ending after step 5") == 2
    assert (tmp_path / "checkpoints" / "step_00000005.pt").exists()


@needs_accelerate
@pytest.mark.torch
def test_accelerate_skips_a_save_that_was_cut_off_and_goes_on_with_equal_losses(
    tmp_path: Path, torch_ranks: Ranks
) -> None:
    train = (EXAMPLES / "accelerate" / "train.py", "--steps", 6, "--save-every", 2, "--rows", 48)
    first = torch_ranks.run(tmp_path, *train, package="accelerate")   # 6 steps an epoch
    assert first.codes == [0], first.err
    (tmp_path / "checkpoints" / "step_00000006" / "random_states_0.pkl").unlink()
    words = resume_words("accelerate", tmp_path)
    assert words == ("--resume", str(tmp_path / "checkpoints" / "step_00000004"))
    second = torch_ranks.run(tmp_path, *train, *words, package="accelerate")
    assert second.codes == [0], second.err
    assert losses(second.out) == {step: losses(first.out)[step] for step in (5, 6)}
