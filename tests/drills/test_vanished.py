"""A run folder that a person renames under the training: it trains to its end, and the nodes come back."""

from __future__ import annotations

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import ALICE, Submitter, plan_of


def test_renamed_run_folder_ends_the_job_with_its_training(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 60 --step-time 0.2")
    drill.wait_ranks(4)
    name, runs = plan_of(drill.run_dir).job_name, drill.run_dir.parent
    old = runs.rename(runs.with_name("runs.old"))

    def told() -> str:
        done = drill.as_user("status", "drill")
        return f"{done.stdout}{done.stderr}"

    said = told()
    assert f"job {drill.job} still runs" in said and f"scancel {drill.job}" in said

    def is_left() -> str:
        return sandbox.slurm(["squeue", "-h", "--name", name, "-o", "%i"]).strip()

    drill.wait_for(lambda: not is_left(), 300.0, "the job is left")
    written = (drill.folder / f"slurm-{drill.job}.out").read_text()
    assert "is gone" in written and "the run has ended: completed" in written
    assert not runs.exists(), "nothing is made anew"
    assert not (old / "drill" / "pulse.json").read_text().count('"over": true'), "nor written to the new place"
    assert max(int(path.stem.split("_")[1]) for path in (drill.folder / "ckpt").glob("step_*.pt")) == 60
    job = sandbox.slurm(["scontrol", "show", "job", drill.job])
    assert "JobState=COMPLETED" in job and "ExitCode=0:0" in job
    assert "knows no job" in told()
    assert drill.folder.owner() == ALICE
