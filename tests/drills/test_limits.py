"""Slurm takes the job away: preemption, and time limits. Neither costs budget, and the run goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import (
    FLAGS,
    check_completes,
    crash,
    in_long,
    long_only,
    note,
    rounds,
    running_again_s,
    wait_standby,
)
from tests.runs import Submitter

JOBS = 3


@rounds
@pytest.mark.parametrize(("partition", "grace_s", "flags"), [
    in_long("low", 0, "", id="cancelled"),   # in the short form by test_hydra
    pytest.param("low-requeue", 5, "", id="requeued-with-grace"),
    pytest.param("low", 20, "--handle-term", id="cancelled-with-grace-to-save"),
])
def test_preempted_run_goes_on_when_the_nodes_are_free_again_at_no_cost(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, partition: str, grace_s: int, flags: str, turn: int
) -> None:
    sandbox = own_sandbox(2, preemption=True)
    sandbox.slurm(["scontrol", "update", f"PartitionName={partition}", f"GraceTime={grace_s}"])
    drill = submit(sandbox)(f"{FLAGS} {flags}", overrides=(f"slurm.partition={partition}",))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    first = drill.state().attempts[0]

    urgent = ["sbatch", "--parsable", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null",
              "--wrap=sleep 3"]
    assert sandbox.run(urgent, user="sl-bob").returncode == 0
    drill.wait_event("job_started", 2, timeout_s=150)

    drill.wait_for(lambda: drill.state().attempts[-1].job != first.job, 60, "the next job started no attempt")
    attempts = drill.state().attempts
    assert attempts[-2].ended == "interrupted" and attempts[-2].category == "preempted", drill.story()
    # With grace the steps get SIGTERM at once, and the job is killed up to 28 s later: the attempt is no failure.
    assert len(attempts) == 2 and drill.state().restarts == 0, drill.story()
    check_completes(drill)


@long_only
@rounds
def test_run_longer_than_its_time_limit_finishes_over_several_jobs(
    sandbox: Sandbox, submit: Submitter, turn: int
) -> None:
    drill = submit(sandbox)(f"{FLAGS} --handle-usr2", overrides=("slurm.time=1",))

    drill.wait_event("attempt_started", JOBS, timeout_s=JOBS * 70)

    state = drill.state()
    assert len({attempt.job for attempt in state.attempts}) == JOBS and state.restarts == 0, drill.story()
    ends = [attempt.ended_t for attempt in state.attempts[:-1]]
    for ended_t, attempt in zip(ends, state.attempts[1:], strict=True):
        assert ended_t is not None
        note(drill, "attempt ended, next job's attempt", attempt.started_t - ended_t)
    check_completes(drill)


@long_only
@rounds
def test_supervisor_that_took_over_sees_the_time_limit_by_itself(
    sandbox: Sandbox, submit: Submitter, turn: int
) -> None:
    drill = submit(sandbox)(f"{FLAGS} --handle-usr2", overrides=("slurm.time=2", "spare_nodes=1"))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    wait_standby(drill)
    first = drill.state().attempts[0]
    died_t = crash(sandbox, first.nodes[0])
    drill.wait_event("attempt_started", 2, timeout_s=60)

    third = drill.wait_event("attempt_started", 3, timeout_s=180)

    state = drill.state()
    assert state.attempts[1].job == first.job != third.data["job"], drill.story()
    assert state.attempts[1].ended == "interrupted" and state.restarts == 1, drill.story()
    running_again_s(drill, died_t, 3, "batch host dead, training again after the time limit")
    check_completes(drill, has_lost_log_end=True)
