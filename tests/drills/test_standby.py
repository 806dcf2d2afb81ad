"""The supervisors die: the batch host, the standby, a leader that stands still and comes back."""

from __future__ import annotations

import signal
import time

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import (
    FLAGS,
    check_completes,
    crash,
    in_long,
    role_on,
    rounds,
    running_again_s,
    stamps,
    wait_standby,
)
from tests.runs import Submitter

FROZEN_S = 30.0


@rounds
@pytest.mark.parametrize("silent", [in_long(False, id="killed"), pytest.param(True, id="silent")])   # test_ladder kills
def test_batch_host_that_dies_is_replaced_in_place_by_the_standby(
    sandbox: Sandbox, submit: Submitter, silent: bool, turn: int
) -> None:
    drill = submit(sandbox)(FLAGS, overrides=("spare_nodes=1",))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    wait_standby(drill)
    first = drill.state().attempts[0]
    host = first.nodes[0]

    died_t = crash(sandbox, host, silent)
    second = drill.wait_event("attempt_started", 2, timeout_s=90)

    assert second.data["job"] == first.job and host not in second.data["nodes"], drill.story()
    assert running_again_s(drill, died_t, 2, "batch host dead, training again") < 40, drill.story()
    check_completes(drill, has_lost_log_end=True)
    assert drill.state().job == drill.state().jobs[0], "the next job was never needed"


@rounds
@pytest.mark.parametrize("silent", [in_long(False, id="killed"), pytest.param(True, id="silent")])
def test_standby_that_dies_is_replaced_and_the_training_does_not_notice(
    sandbox: Sandbox, submit: Submitter, silent: bool, turn: int
) -> None:
    drill = submit(sandbox)(FLAGS, overrides=("spare_nodes=1",))
    drill.wait_step(25)
    node = wait_standby(drill)
    assert node not in drill.state().attempts[0].nodes, "a spare is there for it"

    crash(sandbox, node, silent)
    replaced = drill.wait_event("standby_started", 2, timeout_s=150)

    assert replaced.data["node"] != node
    check_completes(drill)
    assert len(drill.state().attempts) == 1, drill.story()


@rounds
def test_leader_that_stood_still_finds_itself_superseded_and_becomes_the_standby(
    sandbox: Sandbox, submit: Submitter, turn: int
) -> None:
    drill = submit(sandbox)(FLAGS)
    drill.wait_step(25)
    node = wait_standby(drill)
    host, leader = drill.state().attempts[0].nodes[0], drill.leader()

    drill.kill(leader, signal.SIGSTOP)
    stopped_t = time.time()
    second = drill.wait_event("attempt_started", 2, timeout_s=90)
    running_again_s(drill, stopped_t, 2, "leader stopped, training again")
    time.sleep(max(0.0, stopped_t + FROZEN_S - time.time()))   # how long it stands still is the fault
    drill.kill(leader, signal.SIGCONT)
    woken_t = time.time()

    assert second.host == node and second.data["nodes"] == [host, node], "its node is well: only it was not"
    drill.wait_for(lambda: role_on(drill, host) == "standby", 60, "it leads on")
    drill.wait_for(lambda: any(event.data["node"] == host for event in drill.events("standby_started")), 60,
                   "no standby where the leader was")
    # Where the folder answers late, it ends its own attempt first. That is of an older generation, and read before.
    late = [event for event in drill.events() if event.host == host and event.t > woken_t]
    assert all(event.data["attempt"] == 1 for event in late), f"it led on: {late}"
    check_completes(drill)
    assert len(stamps(drill)) == 2, drill.story()
