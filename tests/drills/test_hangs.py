"""A training that hangs: noticed, looked at, ended by two witnesses, restarted."""

from __future__ import annotations

import json

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import Submitter
from tests.trainers.steps import losses_until


@pytest.mark.slurm
def test_training_that_hangs_is_seen_by_its_silence_and_its_stacks_and_goes_on(
    sandbox: Sandbox, submit: Submitter
) -> None:
    drill = submit(sandbox)("--steps 600 --step-time 0.1 --save-every 10 --lockstep sync --hang-at 330 --die-rank 2",
                            overrides=("hang.no_progress=15s",))
    drill.wait_step(329, timeout_s=90)
    found = drill.wait_event("verdict", timeout_s=120)

    assert found.data["category"] == "hang", drill.story()
    state = drill.wait_end(200)
    assert state.ended and state.ended.how == "completed", drill.story()
    assert drill.losses() == losses_until(600)
    verdicts = sorted((drill.run_dir / "attempts" / "0001" / "stacks").glob("*/verdict.json"))
    assert len(verdicts) == 2, "two looks agree before anything is ended"
    assert json.loads(verdicts[0].read_text())
