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
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from safelaunch.checkpoints.io.checkpoints import find
from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.config.scripts.scriptlayer import read_script
from safelaunch.run.plan import of_settings
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import IS_LONG, long_only
from tests.frameworks.trainings import QUIET, make_bin, needs
from tests.localruns import LocalRun, type_safelaunch
from tests.runs import ALICE, Drill, Installation, comm_of, environ_of
from tests.sandboxes import make_workdir

SCRIPTS = Path(__file__).parent / "scripts"
NUMBER = r"(?P<loss>[\d.]+(?:E[+-]\d+)?)"


class Script(NamedTuple):
    """What a training needs; how its own lines name loss and place; where and as what it saves; its last step."""

    package: str
    line: str
    format: str
    saved: str = "out"
    last: int = 16


TABLE = {
    "transformers": Script("transformers", rf"'loss': '?{NUMBER}'?,.*?'epoch': '?(?P<at>[\d.]+)", "hf"),
    "accelerate": Script("accelerate", rf"\b(?P<at>\d+)/16 \[[^\r\n\]]*?loss={NUMBER}", "hf"),
    "lightning": Script("lightning", rf"Epoch (?P<epoch>\d): [^\r\n]*?(?P<at>[1-4])/4 \[[^\r\n]*?train_loss={NUMBER}",
                        "lightning", last=4),
    "deepspeed": Script("deepspeed", rf"\[ 1, +(?P<at>\d+)\] loss: +{NUMBER}", "deepspeed"),
    "jax": Script("jax", rf"completed step: (?P<at>\d+), .*?loss: {NUMBER}", "orbax"),
    "ray": Script("ray", rf"Iter (?P<at>\d+): \tloss: {NUMBER}", "torch"),
    "torchtitan": Script("torch", rf"step: +(?P<at>\d+)  loss: +{NUMBER}", "dcp", "outputs/checkpoint"),
    "megatron": Script("torch", rf"iteration +(?P<at>\d+)/ .*?lm loss: {NUMBER}", "megatron", "ckpt"),
    "nanogpt": Script("torch", rf"iter (?P<at>\d+): loss {NUMBER}", "torch"),
    "ddp_srun": Script("torch", rf"Epoch \[(?P<epoch>\d)/4\], Step \[(?P<at>\d)/4\], Loss: {NUMBER}", "torch", last=4),
}
QUICK = "nanogpt"   # 6 s of processor time; the others in the long form
each = pytest.mark.parametrize("name", TABLE)
each_but_ray = pytest.mark.parametrize("name", [name for name in TABLE if name != "ray"])   # it has no ranks
# A rank that is asked by this signal stays in a function of its own; no training uses it.
STAY = signal.SIGRTMIN + 5
STAYING = f"""\
import signal, time
def fetch_batch(*_):
    time.sleep(3600)
signal.signal({STAY}, fetch_batch)
"""


def losses(name: str, log: str) -> dict[tuple[str, ...], str]:
    """Place → loss, as the training's own lines tell."""
    return {tuple(value for key, value in match.groupdict().items() if key != "loss"): match["loss"]
            for match in re.finditer(TABLE[name].line, log)}


def test_the_folder_and_the_table_name_the_same() -> None:
    assert {path.name for path in SCRIPTS.iterdir()} == set(TABLE)


@each
def test_script_is_accepted_as_it_is_and_five_lines_say_the_same(name: str) -> None:
    text = (SCRIPTS / name / "job.slurm").read_text()
    problems = read_script(text, "script", "job.slurm").problems
    assert problems == []
    lines = (SCRIPTS / name / "train.yaml").read_text()
    asked = resolve([ConfigLayer("file", "train.yaml", lines)], [], {}, base_dir="/somewhere").settings
    plan = of_settings(asked, "example")
    assert len(lines.splitlines()) <= 5 and plan.resume.dir and plan.resume.by == "training"


def lay_out(folder: Path, name: str, env: Mapping[str, str] = QUIET) -> Path:
    """The training, beside a `venv` as people activate it, with the interpreter of the tests in it."""
    for path in (SCRIPTS / name).iterdir():
        shutil.copy(path, folder / path.name)
    bin_dir = make_bin(folder / "venv" / "bin")
    exports = "\n".join(f"export {key}={value}" for key, value in {"RAY_TMPDIR": str(folder), **env}.items())
    (bin_dir / "activate").write_text(f"export PATH={bin_dir}:{sys.prefix}/bin:$PATH\n{exports}\n")
    return folder


class Undisturbed(NamedTuple):
    """Losses and `status --json` of a training at its end, and where it ran."""

    losses: dict[tuple[str, ...], str]
    status: dict[str, object]
    folder: Path


UNDISTURBED: dict[str, Undisturbed] = {}   # each takes 10 to 20 s of processor time


@pytest.fixture(scope="module", autouse=True)
def rooms() -> Iterator[None]:
    """Removes their folders when the module's tests are over."""
    yield
    while UNDISTURBED:
        shutil.rmtree(UNDISTURBED.popitem()[1].folder)


def undisturbed(name: str, env: dict[str, str]) -> Undisturbed:
    """The training by its train.yaml; skips the test where the package is missing."""
    needs(TABLE[name].package)
    if name not in UNDISTURBED:
        run = submit_yaml(name, Path(tempfile.mkdtemp(prefix="undisturbed-")), env)
        run.wait_for(lambda: run.state().ended, 300, "the run did not end")
        ended = run.wait_end()
        assert (ended.how, len(run.state().attempts)) == ("completed", 1), run.story()
        status = json.loads(run.type("status", str(run.run_dir), "--json").stdout)
        UNDISTURBED[name] = Undisturbed(losses(name, run.log(1)), status, run.folder)
    return UNDISTURBED[name]


def submit_yaml(name: str, folder: Path, env: dict[str, str], *words: str) -> LocalRun:
    """`safelaunch submit train.yaml` on the local cluster."""
    done = type_safelaunch(["submit", "train.yaml", "--json", *words], lay_out(folder, name), env)
    assert done.returncode == 0, done.stderr
    return LocalRun(folder, Path(json.loads(done.stdout)["run_dir"]), env)


def skip_unless_quick(name: str) -> None:
    """All but one in the long form."""
    if not IS_LONG and name != QUICK:
        pytest.skip("long; run with SAFELAUNCH_LONG=1")


@pytest.mark.torch
@each
def test_steps_and_loss_are_read_from_its_own_lines(name: str, local_env: dict[str, str]) -> None:
    skip_unless_quick(name)

    printed, status, _ = undisturbed(name, local_env)

    assert len(printed) == 16, printed
    assert status["step"] == TABLE[name].last, status
    assert status["loss"] == pytest.approx(float(list(printed.values())[-1])), status


@pytest.mark.torch
@each
def test_checkpoint_that_is_cut_is_passed_over(name: str, tmp_path: Path, local_env: dict[str, str]) -> None:
    skip_unless_quick(name)
    folder = shutil.copytree(undisturbed(name, local_env).folder / TABLE[name].saved, tmp_path / "saved")
    whole = find(str(folder), "auto")
    assert whole.best is not None and not whole.skipped and whole.best.format == TABLE[name].format, whole
    newest = Path(whole.best.path)
    largest = max((path for path in (newest, *newest.rglob("*")) if path.is_file()),
                  key=lambda path: path.stat().st_size)

    os.truncate(largest, largest.stat().st_size // 2)

    cut = find(str(folder), "auto")
    assert cut.best == next(iter(whole.older), None) and str(newest) in [one.path for one in cut.skipped], cut


@long_only
@pytest.mark.torch
@each_but_ray
def test_hang_names_the_rank_that_does_not_come(name: str, tmp_path: Path, local_env: dict[str, str]) -> None:
    needs(TABLE[name].package)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "sitecustomize.py").write_text(STAYING)
    run = submit_yaml(name, tmp_path / "train", local_env, f"env.PYTHONPATH={tmp_path}/train", "hang.no_progress=5s")
    try:
        run.wait_for(lambda: len(losses(name, run.log(1))) >= 6, 240, "step 6 was not reached")
        os.kill(rank_of(run.pids("train.py"), 1), STAY)
        run.wait_for(lambda: run.events("verdict"), 300, "no verdict")

        found = run.events("verdict")[0].data
        assert found["category"] == "hang" and "fetch_batch" in str(found["summary"]), (found, run.story())
        samples = sorted((run.run_dir / "attempts" / "0001" / "stacks").glob("*/verdict.json"))
        assert [odd["rank"] for odd in json.loads(samples[-1].read_text())["verdict"]["odd"]] == [1], found
    finally:
        run.type("stop", "--now", str(run.run_dir))
        run.wait_end()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For Ray's sockets, whose paths have at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    shutil.chown(folder, ALICE)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@long_only
@pytest.mark.torch
@each
def test_unchanged_script_loses_a_rank_and_goes_on_with_equal_losses(
    name: str, local_env: dict[str, str], own_sandbox: Callable[..., Sandbox], installation: Installation,
    short_folder: Path
) -> None:
    expected = undisturbed(name, local_env).losses
    drill = submit_script(name, own_sandbox(2, netns=True), installation, short_folder)   # nodes' names resolve
    drill.wait_for(lambda: len(losses(name, drill.log(1))) >= 6, 240, "step 6 was not reached")

    os.kill(rank_of(drill.pids("train.py"), 1 if name != "ray" else 0), signal.SIGKILL)

    state = drill.wait_end(300)
    assert state.ended and state.ended.how == "completed", drill.story() + drill.log(1) + drill.log(2)
    assert [attempt.ended for attempt in state.attempts] == ["failed", "completed"], drill.story()
    again = losses(name, drill.log(2))
    assert 0 < len(again) < 16, "the second attempt began anew"
    assert losses(name, drill.log(1)) | again == expected


def submit_script(name: str, sandbox: Sandbox, installation: Installation, short: Path) -> Drill:
    """`safelaunch submit job.slurm` as sl-alice."""
    work, extensions = make_workdir(sandbox), Path(QUIET["TORCH_EXTENSIONS_DIR"])
    # Each node has a network of its own. Extensions are locked by whoever loads them.
    env = {key: value for key, value in QUIET.items() if key != "GLOO_SOCKET_IFNAME"}
    lay_out(work, name, {**env, "TORCH_EXTENSIONS_DIR": f"{work}/extensions", "RAY_TMPDIR": str(short)})
    if name == "deepspeed" and extensions.is_dir():
        shutil.copytree(extensions, work / "extensions")
    for path in (work, *work.rglob("*")):
        shutil.chown(path, ALICE)
    env = {**installation.env, "XDG_STATE_HOME": f"{work}/.state"}
    argv = [*installation.argv, "submit", "job.slurm", "--json", "restart.backoff=1s"]
    done = sandbox.run(argv, cwd=work, user=ALICE, env=env, timeout_s=180)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    told = json.loads(done.stdout)
    return Drill(sandbox, installation, work, Path(told["run_dir"]), told["job"], [done.stderr], env)



def rank_of(pids: list[int], number: int) -> int:
    """The newest of these Python processes that is this rank; of Ray the driver, whose node is the first."""
    named = {f"{key}={number}".encode() for key in ("RANK", "SLURM_PROCID")}
    found = []
    for pid in pids:
        words = environ_of(pid).split(b"\0")
        ranked = [word for word in words if word.startswith(b"RANK=")] or words
        if named & set(ranked) and comm_of(pid).startswith(("python", "pt_main")):
            found.append(pid)
    return max(found)
