"""Ten trainings as people have them, in the style of each framework's own documentation: scripts/NAME.

`train.py` prints the framework's own lines and finds its newest checkpoint by itself. `job.slurm` is run unchanged by
`safelaunch submit job.slurm`, on a real Slurm (long form). `train.yaml` has at most five lines and runs on the local
cluster, undisturbed. `make test-frameworks` installs the packages; what is missing is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from safelaunch.core.config.resolve import ConfigLayer, resolve
from safelaunch.core.config.scriptlayer import read_script
from safelaunch.core.plan import make
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import IS_LONG, long_only
from tests.frameworks.trainings import QUIET, make_bin, needs
from tests.localruns import LocalRun, type_safelaunch
from tests.runs import ALICE, Drill, Installation
from tests.sandboxes import make_workdir

SCRIPTS = Path(__file__).parent / "scripts"
NUMBER = r"(?P<loss>[\d.]+(?:E[+-]\d+)?)"


class Script(NamedTuple):
    """What a training needs, how its own lines name loss and place, and the last step as they count it."""

    package: str
    line: str
    last: int = 16


TABLE = {
    "transformers": Script("transformers", rf"'loss': '?{NUMBER}'?,.*?'epoch': '?(?P<at>[\d.]+)"),
    "accelerate": Script("accelerate", rf"\b(?P<at>\d+)/16 \[[^\r\n\]]*?loss={NUMBER}"),
    "lightning": Script("lightning", rf"Epoch (?P<epoch>\d): [^\r\n]*?(?P<at>\d)/4 \[[^\r\n]*?train_loss={NUMBER}", 4),
    "deepspeed": Script("deepspeed", rf"\[ 1, +(?P<at>\d+)\] loss: +{NUMBER}"),
    "jax": Script("jax", rf"completed step: (?P<at>\d+), .*?loss: {NUMBER}"),
    "ray": Script("ray", rf"Iter (?P<at>\d+): \tloss: {NUMBER}"),
    "torchtitan": Script("torch", rf"step: +(?P<at>\d+)  loss: +{NUMBER}"),
    "megatron": Script("torch", rf"iteration +(?P<at>\d+)/ .*?lm loss: {NUMBER}"),
    "nanogpt": Script("torch", rf"iter (?P<at>\d+): loss {NUMBER}"),
    "ddp_srun": Script("torch", rf"Epoch \[(?P<epoch>\d)/4\], Step \[(?P<at>\d)/4\], Loss: {NUMBER}", 4),
}
QUICK = "nanogpt"   # 6 s of processor time; the others in the long form
each = pytest.mark.parametrize("name", TABLE)


def losses(name: str, log: str) -> dict[tuple[str, ...], str]:
    """Place → loss, as the training's own lines tell."""
    return {tuple(value for key, value in match.groupdict().items() if key != "loss"): match["loss"]
            for match in re.finditer(TABLE[name].line, log)}


def test_the_folder_and_the_table_name_the_same() -> None:
    assert {path.name for path in SCRIPTS.iterdir()} == set(TABLE)


@each
def test_script_is_accepted_as_it_is_and_five_lines_say_the_same(name: str) -> None:
    text = (SCRIPTS / name / "job.slurm").read_text()
    _, problems, _ = read_script(text, "script", "job.slurm")
    assert problems == []
    lines = (SCRIPTS / name / "train.yaml").read_text()
    plan = make(resolve([ConfigLayer("file", "train.yaml", lines)], [], {}, base_dir="/somewhere").config, "example")
    assert len(lines.splitlines()) <= 5 and plan.resume.dir and plan.resume.by == "training"


def lay_out(folder: Path, name: str) -> Path:
    """The training, beside a `venv` as people activate it, with the interpreter of the tests in it."""
    for path in (SCRIPTS / name).iterdir():
        shutil.copy(path, folder / path.name)
    bin_dir = make_bin(folder / "venv" / "bin")
    exports = "\n".join(f"export {key}={value}" for key, value in QUIET.items())
    (bin_dir / "activate").write_text(f"export PATH={bin_dir}:{sys.prefix}/bin:$PATH\n{exports}\n")
    return folder


UNDISTURBED: dict[str, tuple[dict[tuple[str, ...], str], dict[str, object]]] = {}


def undisturbed(name: str, folder: Path, env: dict[str, str]) -> tuple[dict[tuple[str, ...], str], dict[str, object]]:
    """(its losses, `status --json` at its end) of the training by its train.yaml."""
    if name not in UNDISTURBED:
        folder.mkdir()
        done = type_safelaunch(["submit", "train.yaml", "--json"], lay_out(folder, name), env)
        assert done.returncode == 0, done.stderr
        run = LocalRun(folder, Path(json.loads(done.stdout)["run_dir"]), env)
        ended = run.wait_end()
        assert (ended.how, len(run.state().attempts)) == ("completed", 1), run.story()
        status = json.loads(run.type("status", str(run.run_dir), "--json").stdout)
        UNDISTURBED[name] = (losses(name, run.log(1)), status)
    return UNDISTURBED[name]


@pytest.mark.torch
@each
def test_steps_and_loss_are_read_from_its_own_lines(name: str, tmp_path: Path, local_env: dict[str, str]) -> None:
    if not IS_LONG and name != QUICK:
        pytest.skip("long; run with SAFELAUNCH_LONG=1")
    needs(TABLE[name].package)

    printed, status = undisturbed(name, tmp_path / "yaml", local_env)

    assert len(printed) == 16, printed
    assert status["step"] == TABLE[name].last, status
    assert status["loss"] == pytest.approx(float(list(printed.values())[-1])), status


@long_only
@pytest.mark.torch
@each
def test_unchanged_script_loses_a_rank_and_goes_on_with_equal_losses(
    name: str, tmp_path: Path, local_env: dict[str, str], sandbox: Sandbox, installation: Installation
) -> None:
    needs(TABLE[name].package)
    expected, _ = undisturbed(name, tmp_path / "yaml", local_env)
    drill = submit_script(name, sandbox, installation)
    drill.wait_for(lambda: len(losses(name, drill.log(1))) >= 6, 240, "step 6 was not reached")

    os.kill(max(pid for pid in drill.pids("train.py") if comm(pid).startswith(("python", "pt_main"))), signal.SIGKILL)

    state = drill.wait_end(300)
    assert state.ended and state.ended.how == "completed", drill.story() + drill.log(1) + drill.log(2)
    assert [attempt.ended for attempt in state.attempts] == ["failed", "completed"], drill.story()
    again = losses(name, drill.log(2))
    assert 0 < len(again) < 16, "the second attempt began anew"
    assert losses(name, drill.log(1)) | again == expected


def submit_script(name: str, sandbox: Sandbox, installation: Installation) -> Drill:
    """`safelaunch submit job.slurm` as sl-alice."""
    work = lay_out(make_workdir(sandbox), name)
    for path in (work, *work.rglob("*")):
        shutil.chown(path, ALICE)
    env = {**installation.env, "XDG_STATE_HOME": f"{work}/.state"}
    argv = [*installation.argv, "submit", "job.slurm", "--json", "restart.backoff=1s"]
    done = sandbox.run(argv, cwd=work, user=ALICE, env=env, timeout_s=180)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    told = json.loads(done.stdout)
    return Drill(sandbox, installation, work, Path(told["run_dir"]), told["job"], [done.stderr], env)


def comm(pid: int) -> str:
    """The process' own name; PyTorch renames its ranks."""
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""
