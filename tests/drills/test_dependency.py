"""slurm.dependency: the first job of a run waits for a job that is none of safelaunch's."""

from __future__ import annotations

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import ALICE, Submitter


def test_the_first_job_waits_for_the_users_job_and_the_run_then_completes(sandbox: Sandbox, submit: Submitter) -> None:
    done = sandbox.run(["sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"], user=ALICE)
    other = done.stdout.strip()
    drill = submit(sandbox)("--steps 5 --step-time 0.01", overrides=(f"slurm.dependency=afterok:{other}",),
                            nodes=1, tasks=1, wait_started=False)
    waits = sandbox.slurm(["squeue", "-h", "-j", drill.job, "-o", "%T %E"])
    assert waits.startswith("PENDING") and f"afterok:{other}" in waits
    assert not drill.events("job_started")
    sandbox.run(["scontrol", "release", other], user=ALICE)
    state = drill.wait_end()
    assert state.ended and state.ended.how == "completed", drill.story()
