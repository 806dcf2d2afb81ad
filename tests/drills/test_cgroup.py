"""A cluster that holds jobs to their memory and devices by cgroups, as most do (`sandbox up --cgroup`).

Any drill runs on such a sandbox with SAFELAUNCH_SANDBOX=cgroup.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS, check_completes, rounds, running_again_s
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
