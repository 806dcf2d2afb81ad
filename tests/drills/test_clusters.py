"""Clusters that change under a run: a suspect is taken out of service, and its name out of slurm.conf."""

from __future__ import annotations

import re
from collections.abc import Callable

from safelaunch.sandbox.cluster import Sandbox
from tests import admin
from tests.drills.proofs import FLAGS, check_losses, check_nothing_left, finish
from tests.runs import Submitter


def retire_last_node(sandbox: Sandbox) -> str:
    """As an administrator does: the node is switched off, slurm.conf is changed, slurmctld restarted. What it was."""
    conf = sandbox.conf.read_text()
    fewer = re.sub(r"NodeName=n\[0-(\d+)\] (.*) Port=\[(\d+)-(\d+)\]", lambda found: (
        f"NodeName=n[0-{int(found[1]) - 1}] {found[2]} Port=[{found[3]}-{int(found[4]) - 1}]"), conf)
    assert fewer != conf
    sandbox.crash(sandbox.nodes[-1])
    configure(sandbox, fewer)
    return conf


def configure(sandbox: Sandbox, conf: str) -> None:
    """Another slurm.conf, with slurmctld restarted."""
    admin.stop_ctl(sandbox)
    admin.put_conf(sandbox.conf, conf)
    sandbox.heal("ctl")


def test_run_goes_on_in_its_next_job_after_a_suspect_has_left_the_cluster(
    own_sandbox: Callable[..., Sandbox], submit: Submitter
) -> None:
    sandbox = own_sandbox(4, gpus=0)
    first = submit(sandbox)(command="true")
    first.wait_end()
    assert first.as_user("nodes", "suspect", "n3", "--why", "its fan is loud").returncode == 0
    drill = submit(sandbox)(FLAGS, folder=first.folder, overrides=("name=second", "suspects.max_excluded=2"))
    drill.wait_event("submitted", 2)
    assert drill.state().excluded == ("n3",), drill.story()
    drill.wait_step(25)

    conf = retire_last_node(sandbox)
    worker = drill.state().attempts[0].nodes[1]
    sandbox.crash(worker)
    second = drill.wait_event("attempt_started", 2, timeout_s=180)
    last = finish(drill)
    state = drill.wait_end(timeout_s=120)

    assert state.ended and state.ended.how == "completed", drill.story()
    check_losses(drill, last)
    assert len(state.jobs) >= 2 and worker not in second.data["nodes"], drill.story()
    assert "n3" in [event.data["node"] for event in drill.events("node_left_out")], drill.story()
    assert "n3" not in drill.as_user("status", str(drill.run_dir)).stdout, "a node that is not there is no news"
    assert "not in this cluster any more" in drill.as_user("nodes").stdout
    configure(sandbox, conf)   # so that the node can be switched on again, and all of them be looked at
    check_nothing_left(drill)
