"""The recovery ladder, rung by rung: a worker node dies, both supervisors die, and watches look on."""

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
    rounds,
    running_again_s,
    silences,
    wait_standby,
)
from tests.drills.test_watch import Watching, said, watch
from tests.runs import Submitter

__all__ = ["watch"]   # a fixture


@rounds
@pytest.mark.parametrize(("spares", "silent"), [
    in_long(1, False, id="spare-killed"), pytest.param(1, True, id="spare-silent"),
    # The silent one without a spare is in test_handover, too: the job before hangs at its end.
    pytest.param(0, False, id="no-spare-killed"), in_long(0, True, id="no-spare-silent"),
])
def test_worker_node_that_dies_is_replaced_by_a_spare_or_in_the_next_job(
    sandbox: Sandbox, submit: Submitter, spares: int, silent: bool, turn: int
) -> None:
    drill = submit(sandbox)(FLAGS, overrides=(f"spare_nodes={spares}",))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    first = drill.state().attempts[0]
    worker = first.nodes[1]

    died_t = crash(sandbox, worker, silent)
    second = drill.wait_event("attempt_started", 2, timeout_s=90)

    assert worker not in second.data["nodes"] and second.data["resume_step"] >= 20, drill.story()
    assert (second.data["job"] == first.job) == bool(spares), drill.story()
    where = "in place" if spares else "in the next job"
    assert running_again_s(drill, died_t, 2, f"worker dead, training again {where}") < 60, drill.story()
    check_completes(drill)
    assert [node for node, _ in drill.state().suspects] == [worker]


@pytest.mark.parametrize("silent", [False, pytest.param(True, marks=long_only)], ids=["killed", "silent"])
def test_node_that_dies_before_its_guard_has_said_a_word_is_replaced_in_time(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, silent: bool
) -> None:
    """srun goes on waiting for its task, and Slurm notices after SlurmdTimeout, 5 minutes as shipped."""
    sandbox = own_sandbox(3, site=("late-tasks",), conf={"SlurmdTimeout": "300"})
    (sandbox.dir / "late-n1").touch()
    drill = submit(sandbox)(FLAGS, overrides=("spare_nodes=1",), wait_started=False)
    drill.wait_event("attempt_started", timeout_s=60)
    drill.wait_for(lambda: drill.pids("task_prolog"), 60, "no task of n1 was started")

    died_t = crash(sandbox, "n1", silent)
    second = drill.wait_event("attempt_started", 2, timeout_s=150)

    assert drill.state().attempts[0].nodes == ("n0", "n1") and second.data["nodes"] == ["n0", "n2"], drill.story()
    assert second.t - died_t < 100, drill.story()
    assert [node for node, _ in drill.state().suspects] == ["n1"]
    check_completes(drill)


@long_only
@rounds
@silences
def test_job_whose_supervisors_both_die_is_ended_by_a_node_guard_and_the_run_goes_on_in_the_next_one(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, silent: bool, turn: int
) -> None:
    sandbox = own_sandbox(6)
    drill = submit(sandbox)(FLAGS, overrides=("spare_nodes=1",))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    first, standby = drill.state().attempts[0], wait_standby(drill)
    assert standby not in first.nodes, "a worker node is left, with its guards"

    crash(sandbox, standby, silent)
    died_t = crash(sandbox, first.nodes[0], silent)
    second = drill.wait_event("attempt_started", 2, timeout_s=400)

    assert second.data["job"] != first.job, drill.story()
    running_again_s(drill, died_t, 2, "both supervisors dead, training again in the next job")
    check_completes(drill, has_lost_log_end=True)


@rounds
def test_two_watches_look_on_while_the_standby_takes_over_and_do_nothing(
    sandbox: Sandbox, submit: Submitter, watch: Watching, turn: int
) -> None:
    drill = submit(sandbox)(FLAGS, overrides=("spare_nodes=1",))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    wait_standby(drill)
    first = drill.state().attempts[0]

    watching = [watch(drill), watch(drill)]
    died_t = crash(sandbox, first.nodes[0])
    second = drill.wait_event("attempt_started", 2, timeout_s=90)

    assert second.data["job"] == first.job and first.nodes[0] not in second.data["nodes"], drill.story()
    assert running_again_s(drill, died_t, 2, "batch host dead, training again") < 40, drill.story()
    drill.wait_step(second.data["resume_step"] + 100, attempt=2)   # some looks of theirs after that
    told = list(map(said, watching))
    assert all("PULSE" in one and "ACT" not in one for one in told), "".join(told) + drill.story()
    check_completes(drill, has_lost_log_end=True)
    assert len(drill.state().attempts) == 2, drill.story()
    assert drill.state().job == drill.state().jobs[0], "the next job was never needed"
