"""The main job on a real Slurm: submit, run, crash, resume, done."""

from __future__ import annotations

import random
import re

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import in_long
from tests.runs import Submitter
from tests.trainers.stepping import losses_until


@pytest.mark.parametrize("seed", [1, in_long(2)])
def test_rank_killed_at_a_random_step_is_resumed_in_place_with_equal_losses(
    sandbox: Sandbox, submit: Submitter, seed: int
) -> None:
    step = random.Random(seed).randint(11, 28)
    drill = submit(sandbox)(
        f"--steps 40 --step-time 0.03 --save-every 10 --die-at {step} --die-rank {seed} --lockstep sync")

    state = drill.wait_end()

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("completed", 0), drill.story()
    assert len(state.attempts) == 2 and len({attempt.job for attempt in state.attempts}) == 1
    assert state.attempts[1].resume_step == (step - 1) // 10 * 10
    assert drill.losses(rank=0) == losses_until(40)
    for rank in range(4):
        assert re.search(rf"^\[n\d:{rank}\]:step 1 loss", drill.log(1), re.MULTILINE)
        assert re.search(rf"^\[n\d:{rank}\]:step 40 loss", drill.log(2), re.MULTILINE)


def test_run_without_a_fault_ends_with_one_attempt_and_no_job_left(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 10 --step-time 0.01")

    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed"
    assert len(state.attempts) == 1 and state.restarts == 0
    assert drill.losses() == losses_until(10)


def test_trainer_that_fails_alike_on_every_node_is_stopped_with_the_proof_and_no_node_is_blamed(
    sandbox: Sandbox, submit: Submitter
) -> None:
    drill = submit(sandbox)("--fail-always", overrides=("restart.backoff=1s",))

    state = drill.wait_end()

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("gave_up", 10), drill.story()
    # Where both nodes' ranks tell their exception it is certain at once. One rank's exit can end the others first: then
    # it takes a second attempt, which proves it or is certain itself, and a third where both blame the same one node.
    certain = "user_code: RuntimeError" in state.ended.why and len(state.attempts) <= 2
    proof = "attempts 1 and 2 failed alike before the first step" in state.ended.why and len(state.attempts) == 2
    assert certain or proof or len(state.attempts) == 3, drill.story()
    assert not state.exclusions, drill.story()
    assert "Error" in (state.attempts[-1].summary or "")


def test_restarts_of_a_trainer_that_makes_progress_are_counted_too(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 400 --step-time 0.005 --save-every 5 --die-attempt 0 --die-at 12 --exit-code 3",
                            nodes=1,
                            overrides=("restart.max_restarts=2", "restart.max_without_progress=9"))

    state = drill.wait_end()

    assert state.ended and state.ended.exit_code in (10, 11), drill.story()
