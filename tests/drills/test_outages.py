"""What a run stands on fails for a while, and comes back: a node's slurmd, slurmctld, the batch host's network."""

from __future__ import annotations

import time
from collections.abc import Callable

from safelaunch.sandbox.cluster import Sandbox
from tests import admin
from tests.drills.proofs import (
    FLAGS,
    IS_LONG,
    check_completes,
    note,
    role_on,
    rounds,
    running_again_s,
    stamps,
    wait_standby,
)
from tests.runs import Submitter

CTL_DOWN_S = 600.0 if IS_LONG else 60.0


@rounds
def test_slurmd_that_stands_still_and_comes_back_starts_no_rank_of_an_old_attempt(
    sandbox: Sandbox, submit: Submitter, turn: int
) -> None:
    drill = submit(sandbox)(f"{FLAGS} --die-at 200 --die-rank 0", overrides=("spare_nodes=1",))
    drill.wait_step(25)
    first = drill.state().attempts[0]
    worker = first.nodes[1]

    admin.freeze_slurmd(sandbox, worker)
    drill.wait_step(200 - 1, attempt=1)   # the training does not notice; then a rank of the other node dies
    died_t = time.time()
    drill.wait_for(lambda: len(stamps(drill)) > 1, 120, "no attempt got through")
    began = max(stamps(drill))
    running_again_s(drill, died_t, began, "slurmd frozen and a rank dead, training again")
    drill.wait_step(220, attempt=began)
    admin.thaw_slurmd(sandbox, worker)
    time.sleep(12)   # a lease and more: what slurmd finds in its socket now was sent to it long ago

    assert set(stamps(drill)) == {1, began}, drill.story()
    assert worker not in drill.state().attempts[-1].nodes, drill.story()
    check_completes(drill)


@rounds
def test_crash_while_slurmctld_is_away_is_recovered_from_when_it_is_back(
    sandbox: Sandbox, submit: Submitter, turn: int
) -> None:
    drill = submit(sandbox)(f"{FLAGS} --die-at 60 --die-rank 2")
    drill.wait_event("submitted", 2)
    drill.wait_step(25)

    sandbox.crash("ctl", silent=True)
    down_t = time.time()
    drill.wait_step(60 - 1)   # behind which the rank dies; that nothing of it is left may need Slurm to be known
    time.sleep(max(0.0, down_t + CTL_DOWN_S - time.time()))   # how long it is away is the fault
    assert drill.state().ended is None, drill.story()
    sandbox.heal("ctl")
    back_t = time.time()
    drill.wait_for(lambda: len(stamps(drill)) > 1, 180, "no attempt got through")

    running_again_s(drill, back_t, max(stamps(drill)), "slurmctld back, training again")
    note(drill, "attempts", len(drill.state().attempts))
    check_completes(drill)


@rounds
def test_batch_host_that_is_cut_off_leaves_the_run_to_the_standby_and_becomes_one_when_the_cable_is_back(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, turn: int
) -> None:
    sandbox = own_sandbox(4, netns=True)
    # Files would still pass between the nodes, and no rank would miss the others.
    drill = submit(sandbox)(FLAGS.replace("--lockstep sync", "--lockstep tcp"), overrides=("spare_nodes=1",))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    wait_standby(drill)
    first = drill.state().attempts[0]
    host = first.nodes[0]

    sandbox.crash(host, cut=True)
    cut_t = time.time()
    second = drill.wait_event("attempt_started", 2, timeout_s=120)
    assert second.data["job"] == first.job and host not in second.data["nodes"], drill.story()
    running_again_s(drill, cut_t, 2, "batch host cut off, training again")
    sandbox.heal(host)
    healed_t = time.time()

    drill.wait_for(lambda: role_on(drill, host) == "standby", 60, "it leads on")
    late = [event for event in drill.events() if event.host == host and event.t > healed_t]
    assert not late, f"it wrote to the journal: {late}"
    assert drill.state().excluded == (host,), "who is cut off blames nobody"
    check_completes(drill)
