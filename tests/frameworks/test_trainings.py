"""The examples with each framework's real package on the local cluster: cells of the table in docs/frameworks.md.

`make test-frameworks` installs the packages and runs this; `make test` skips what is missing.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.drills.proofs import long_only
from tests.frameworks.trainings import (
    CALLBACKS,
    FRAMEWORKS,
    LONG,
    SAVE_EVERY,
    SMALL,
    STEPS,
    losses,
    submit,
    undisturbed,
)
from tests.localruns import SubmitLocal
from tests.runs import by_age

each = pytest.mark.parametrize("name", FRAMEWORKS)
each_with_callback = pytest.mark.parametrize("name", CALLBACKS)
pytestmark = [pytest.mark.torch, pytest.mark.timed]


def kill_a_rank(submit_local: SubmitLocal, folder: Path, name: str, callback: bool) -> None:
    """Two ranks, one of them killed after step 6, must train as two that nobody disturbs."""
    run = submit(submit_local, folder, name, f"{SMALL} --step-time 0.8", callback=callback)
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 6, 180, "step 6 was not reached")

    os.kill(by_age(run.ranks("train.py"))[-1], signal.SIGKILL)

    run.wait_for(lambda: run.state().ended, 300, "the run did not end")
    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("completed", 0), run.story()
    first, second = run.state().attempts
    assert (first.ended, second.ended) == ("failed", "completed"), run.story()
    assert second.resume_step and second.resume_step in range(SAVE_EVERY, STEPS, SAVE_EVERY), run.story()
    after = losses(run.log(2))
    assert sorted(after) == list(range(second.resume_step + 1, STEPS + 1))
    assert losses(run.log(1)) | after == losses(undisturbed(name))
    assert ("safelaunch: step" in run.log(2)) == (callback and name in CALLBACKS)


@each
def test_killed_rank_is_resumed_with_equal_losses(submit_local: SubmitLocal, tmp_path: Path, name: str) -> None:
    kill_a_rank(submit_local, tmp_path, name, callback=True)


@long_only
@each_with_callback
def test_killed_rank_is_resumed_without_the_callback(submit_local: SubmitLocal, tmp_path: Path, name: str) -> None:
    kill_a_rank(submit_local, tmp_path, name, callback=False)


@each
def test_kill_switch_saves_and_ends_all_ranks_at_one_step(
    submit_local: SubmitLocal, tmp_path: Path, name: str
) -> None:
    run = submit(submit_local, tmp_path, name, f"{LONG} --save-every 1000000")
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 2, 180, "step 2 was not reached")

    run.type("stop", "--checkpoint", str(run.run_dir))

    run.wait_for(lambda: run.state().ended, 300, "the run did not end")
    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    assert run.events("attempt_ended")[0].data["exit_code"] == 0, run.log(1)
    steps = re.findall(r"rank \d was asked to end: saved, ending after step (\d+)", run.log(1))
    assert len(steps) == 2 and len(set(steps)) == 1, run.log(1)
    said = run.type("checkpoints", str(run.run_dir)).stdout
    assert re.search(rf"(?m)^complete +{steps[0]} ", said), said


@long_only
@each_with_callback
def test_without_the_callback_stop_with_checkpoint_ends_at_the_next_one(
    submit_local: SubmitLocal, tmp_path: Path, name: str
) -> None:
    run = submit(submit_local, tmp_path, name, f"{LONG} --save-every 40", callback=False)
    run.wait_for(lambda: max(losses(run.log(1)), default=0) >= 2, 180, "step 2 was not reached")

    run.type("stop", "--checkpoint", str(run.run_dir))

    run.wait_for(lambda: run.state().ended, 300, "the run did not end")
    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    step = re.search(r"(?m)^complete +(\d+) ", run.type("checkpoints", str(run.run_dir)).stdout)
    assert step and int(step[1]) % 40 == 0, run.story()
    assert "was asked to end" not in run.log(1)
