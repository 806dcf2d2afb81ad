"""Whose fault it is: a node that kills every attempt is found by evidence, a user's bug blames no node."""

from __future__ import annotations

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS, check_completes, check_nothing_left, in_long, rounds
from tests.runs import Drill, Installation, Submitter

BESIDE_A_SPARE = ("spare_nodes=1", "slurm.nodelist=n[0-2]", "restart.backoff=1s")


@rounds
def test_node_that_kills_every_attempt_is_kept_out_and_the_run_completes(
    sandbox: Sandbox, submit: Submitter, turn: int
) -> None:
    # Before the first step, as a node with a broken GPU, driver or mount does it.
    drill = submit(sandbox)(f"{FLAGS} --die-node n1 --die-after 0 --die-signal BUS",
                            overrides=BESIDE_A_SPARE)

    drill.wait_step(40, timeout_s=120)

    check_goes_on_without_n1(drill, attempts=4)
    check_completes(drill)


def check_goes_on_without_n1(drill: Drill, attempts: int) -> None:
    """In place, after so many attempts at most, and with no word against the node to other runs."""
    state = drill.state()
    assert "n1" not in state.attempts[-1].nodes and len(state.attempts) <= attempts, drill.story()
    assert all(one.blamed == ("n1",) for one in state.attempts if one.has_failed), drill.story()
    assert len({attempt.job for attempt in state.attempts}) == 1 and not state.excluded, drill.story()


def test_an_io_error_of_one_node_at_the_same_step_is_tried_on_the_spare(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)(f"{FLAGS} --raise --die-node n1 --die-rank 99 --die-at 25", overrides=BESIDE_A_SPARE)

    drill.wait_step(40, timeout_s=120)

    check_goes_on_without_n1(drill, attempts=3)
    assert "Input/output error" in (drill.state().attempts[0].evidence or ("",))[0], drill.story()
    check_completes(drill)


def test_a_module_that_one_node_lacks_is_tried_on_the_spare(
    sandbox: Sandbox, submit: Submitter, installation: Installation
) -> None:
    lacks = "[[ $SLURMD_NODENAME != n1 ]] || python3 -c 'import of_this_node_only' || exit"
    drill = submit(sandbox)(command=f"{lacks}; {installation.trainer} {FLAGS} --ckpt ckpt ${{RESUME_ARGS}}",
                            overrides=BESIDE_A_SPARE)

    drill.wait_step(40, timeout_s=120)

    check_goes_on_without_n1(drill, attempts=2)
    assert drill.state().attempts[0].category == "environment", drill.story()
    check_completes(drill)


@rounds
# The first ends all in the short form, too: test_main_job, before the first step.
@pytest.mark.parametrize("kill", [pytest.param(0, id="all-die-of-it"), in_long(1, id="the-first-ends-all")])
def test_users_bug_on_every_node_blames_none_and_stops_with_the_proof(
    sandbox: Sandbox, submit: Submitter, kill: int, turn: int
) -> None:
    drill = submit(sandbox)(f"{FLAGS} --die-at 33 --die-rank -1 --die-attempt 0 --raise",
                            overrides=("restart.backoff=1s", f"srun.kill_on_bad_exit={kill}"))

    state = drill.wait_end(90)

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("gave_up", 10), drill.story()
    assert "too many values to unpack" in state.ended.why, state.ended.why
    assert not state.excluded and not state.suspects, drill.story()
    if kill:   # who is ended before his own exception ends him says nothing: then it is the budget that stops the run
        assert len(state.attempts) <= 4, drill.story()
    else:
        assert len(state.attempts) == 2 and "failed alike at step 32" in state.ended.why, drill.story()
    check_nothing_left(drill)
