"""The examples with each framework's real package on the local cluster: cells of the table in docs/frameworks.md.

`make test-frameworks` installs the packages and runs this; `make test` skips what is missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from safelaunch.adapters.checkpoints import find
from tests.frameworks.trainings import (
    CALLBACKS,
    FRAMEWORKS,
    LONG,
    SAVE_EVERY,
    SMALL,
    STEPS,
    losses,
    rooms,
    submit,
    undisturbed,
)
from tests.localruns import LocalRun, SubmitLocal
from tests.runs import environ_of

each = pytest.mark.parametrize("name", FRAMEWORKS)
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("rooms")]
__all__ = ["rooms"]

# A rank that is asked by this signal stays in a function of its own; no training uses it.
STAY = signal.SIGRTMIN + 5
HANGING = f"""\
import signal, time
def fetch_batch(*_):
    time.sleep(3600)
signal.signal({STAY}, fetch_batch)
"""


def rank_of(run: LocalRun, name: str, number: int) -> int:
    """The pid of a rank."""
    variable = "SLURM_PROCID" if FRAMEWORKS[name].launcher == "jax" else "RANK"
    named = f"{variable}={number}".encode()
    return max(pid for pid in run.ranks("train.py") if named in environ_of(pid).split(b"\0"))


def kill_a_rank(submit_local: SubmitLocal, folder: Path, name: str, callback: bool) -> None:
    """Two ranks, one of them killed after step 6, must train as two that nobody disturbs."""
    run = submit(submit_local, folder, name, f"{SMALL} --step-time 0.3", callback=callback)
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 6, 180, "step 6 was not reached")

    os.kill(max(run.ranks("train.py")), signal.SIGKILL)

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("completed", 0), run.story()
    first, second = run.state().attempts
    assert (first.ended, second.ended) == ("failed", "completed"), run.story()
    assert second.resume_step in (SAVE_EVERY, 2 * SAVE_EVERY), run.story()
    after = losses(run.log(2))
    assert sorted(after) == list(range(second.resume_step + 1, STEPS + 1))
    assert losses(run.log(1)) | after == losses(undisturbed(name).log)
    assert ("safelaunch: step" in run.log(2)) == (callback and name in CALLBACKS)


@each
def test_killed_rank_is_resumed_with_equal_losses(submit_local: SubmitLocal, tmp_path: Path, name: str) -> None:
    kill_a_rank(submit_local, tmp_path, name, callback=True)


@pytest.mark.parametrize("name", CALLBACKS)
def test_killed_rank_is_resumed_without_the_callback(submit_local: SubmitLocal, tmp_path: Path, name: str) -> None:
    kill_a_rank(submit_local, tmp_path, name, callback=False)


@each
def test_checkpoint_that_is_cut_is_passed_over(tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(undisturbed(name).checkpoints, tmp_path / "ckpt")
    for format in ("auto", FRAMEWORKS[name].format):
        found = find(str(folder), format)
        assert found.best and found.best.format == FRAMEWORKS[name].format and not found.skipped, found
        assert (found.best.step, found.older[0].step) in ((14, 12), (12, 8)), found
    newest, older = Path(found.best.path), found.older[0]
    largest = max((path for path in (newest, *newest.rglob("*")) if path.is_file()),
                  key=lambda path: path.stat().st_size)

    os.truncate(largest, largest.stat().st_size // 2)

    found = find(str(folder), "auto")
    assert found.best == older and [Path(one.path) for one in found.skipped] == [newest], found


@each
def test_kill_switch_saves_and_ends_all_ranks_at_one_step(
    submit_local: SubmitLocal, tmp_path: Path, name: str
) -> None:
    run = submit(submit_local, tmp_path, name, f"{LONG} --save-every 1000000")
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 2, 180, "step 2 was not reached")

    run.type("stop", "--checkpoint", str(run.run_dir))

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    assert run.events("attempt_ended")[0].data["exit_code"] == 0, run.log(1)
    steps = re.findall(r"rank \d was asked to end: saved, ending after step (\d+)", run.log(1))
    assert len(steps) == 2 and len(set(steps)) == 1, run.log(1)
    said = run.type("checkpoints", str(run.run_dir)).stdout
    assert re.search(rf"(?m)^complete +{steps[0]} ", said), said


@pytest.mark.parametrize("name", CALLBACKS)
def test_without_the_callback_stop_with_checkpoint_ends_at_the_next_one(
    submit_local: SubmitLocal, tmp_path: Path, name: str
) -> None:
    run = submit(submit_local, tmp_path, name, f"{LONG} --save-every 40", callback=False)
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 2, 180, "step 2 was not reached")

    run.type("stop", "--checkpoint", str(run.run_dir))

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    step = re.search(r"(?m)^complete +(\d+) ", run.type("checkpoints", str(run.run_dir)).stdout)
    assert step and int(step[1]) % 40 == 0, run.story()
    assert "was asked to end" not in run.log(1)


@each
def test_hang_names_the_rank_that_does_not_come(submit_local: SubmitLocal, tmp_path: Path, name: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(HANGING)
    run = submit(submit_local, tmp_path, name, f"{LONG} --save-every 1000000", "hang.no_progress=5s")
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 8, 180, "step 8 was not reached")

    os.kill(rank_of(run, name, 1), STAY)

    run.wait_for(lambda: run.events("verdict"), 300, "no verdict")
    found = run.events("verdict")[0].data
    assert found["category"] == "hang" and "fetch_batch" in str(found["summary"]), run.story()
    samples = sorted((run.run_dir / "attempts" / "0001" / "stacks").glob("*/verdict.json"))
    last = json.loads(samples[-1].read_text())
    assert [odd["rank"] for odd in last["verdict"]["odd"]] == [1], last
