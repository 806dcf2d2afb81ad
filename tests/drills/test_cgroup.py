"""A cluster that holds jobs to their memory and devices by cgroups, as most do (`sandbox up --cgroup`).

Any drill runs on such a sandbox with SAFELAUNCH_SANDBOX=cgroup.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from safelaunch.sandbox import cgroups
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS, check_completes, long_only, rounds, running_again_s, wait_standby
from tests.runs import Submitter

MEMORY_MB = 150
SMALL = f"slurm.mem={MEMORY_MB}"


@rounds
def test_rank_over_the_jobs_memory_is_named_with_its_node_and_the_run_goes_on_without_blame(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, turn: int
) -> None:
    drill = submit(own_sandbox(3, cgroup=True))(f"{FLAGS} --eat-at 25 --die-rank 2 --eat-mb 400", overrides=(SMALL,))

    second = drill.wait_event("attempt_started", 2, timeout_s=60)

    verdict = json.loads(drill.as_user("why", "--json").stdout)["verdict"]
    assert (verdict["category"], verdict["host"], verdict["rank"]) == ("host_oom", "n1", 2), verdict
    assert "oom-kill event" in verdict["evidence"][0]["text"] and not verdict["suspects"], verdict
    assert second.data["job"] == drill.job and second.data["resume_step"] == 20, drill.story()
    failed = drill.wait_event("attempt_ended")
    running_again_s(drill, failed.t, 2, "rank over its memory, training again in place")
    check_completes(drill)
    assert not drill.state().suspects, drill.story()


@rounds
@pytest.mark.parametrize("index", [0, pytest.param(1, marks=long_only)], ids=["batch host", "worker"])
def test_node_whose_job_was_frozen_writes_nothing_when_it_is_thawed_beside_its_successors(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, index: int, turn: int
) -> None:
    sandbox = own_sandbox(3, cgroup=True)
    drill = submit(sandbox)(FLAGS, overrides=("spare_nodes=1",))
    wait_standby(drill)
    drill.wait_step(25)
    node = drill.state().attempts[0].nodes[index]
    group = cgroups.freezer_of(sandbox.dir, node)
    assert group is not None

    cgroups.freeze(group)
    try:
        frozen_t = time.time()
        second = drill.wait_event("attempt_started", 2, timeout_s=60)
        what = "batch host" if index == 0 else "worker"
        running_again_s(drill, frozen_t, 2, f"{what} frozen, training again in place")
        assert len(drill.ranks(node)) == 2, "what is frozen does not die"
    finally:
        cgroups.thaw(group)
    drill.wait_for(lambda: not drill.ranks(node), 20, "its ranks live on")

    assert second.data["job"] == drill.job and node not in second.data["nodes"], drill.story()
    check_completes(drill, has_lost_log_end=index == 0)
