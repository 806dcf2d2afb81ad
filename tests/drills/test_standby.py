"""The batch host dies, the standby dies, both die; a leader that was cut off comes back."""

from __future__ import annotations

import time

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.test_nodes import stamps
from tests.runs import Drill, Submitter
from tests.trainers.steps import losses_until

FLAGS = "--step-time 0.05 --save-every 10 --lockstep sync --stamp-dir stamps"


def wait_standby(drill: Drill) -> str:
    """The node of the standby, once it stands by."""
    return str(drill.wait_event("standby_started", timeout_s=60).data["node"])


@pytest.mark.parametrize("silent", [False, True], ids=["killed", "silent"])
def test_batch_host_that_dies_is_replaced_in_place_by_the_standby(
    sandbox: Sandbox, submit: Submitter, silent: bool
) -> None:
    drill = submit(sandbox)(f"--steps 400 {FLAGS}", overrides=("spare_nodes=1",))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    wait_standby(drill)
    first = drill.state().attempts[0]
    host = first.nodes[0]

    sandbox.crash(host, silent=silent)
    died_t = time.time()
    second = drill.wait_event("attempt_started", 2, timeout_s=90)
    drill.noise.append(f"running again after {second.t - died_t:.1f} s")

    assert second.data["job"] == first.job, drill.story()
    assert host not in second.data["nodes"]
    assert second.t - died_t < 30, drill.story()
    state = drill.wait_end()
    assert state.ended and (state.ended.how, state.ended.exit_code) == ("completed", 0), drill.story()
    assert drill.losses() == losses_until(400)
    drill.wait_for(lambda: not drill.jobs(), 60, "a job is left")
    assert stamps(drill, 1)
