"""A federation, whose jobs Slurm starts on whichever of its clusters is free first. Never two attempts of a run on two
clusters.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS, check_completes, long_only
from tests.federations import make_federation, occupy
from tests.runs import ALICE, Drill, Submitter


def job_name(drill: Drill) -> str:
    """The name that all jobs of the run have."""
    return drill.sandbox.slurm(["squeue", "--noheader", f"--jobs={drill.job}", "--format=%j"]).strip()


def jobs_on(sandbox: Sandbox, name: str) -> dict[str, str]:
    """id → state of all jobs of that name that this cluster remembers."""
    lines = sandbox.slurm(["squeue", "--local", "--noheader", "--states=all", f"--name={name}", "--format=%i %T"])
    return dict(line.split() for line in lines.splitlines())


def clusters_of(sandbox: Sandbox, job: str) -> list[str]:
    """The clusters on which a job may start."""
    shown = sandbox.slurm(["scontrol", "--oneliner", "show", "job", job])
    return re.findall(r"FedViableSiblings=(\S+)", shown)


def stray(drill: Drill, other: Sandbox) -> str:
    """The run's script by hand on the other cluster, without its line about clusters: the id of that job."""
    lines = (drill.run_dir / "job.sbatch").read_text().splitlines()
    script = drill.folder / "stray.sbatch"
    script.write_text("".join(f"{line}\n" for line in lines if not line.startswith("#SBATCH --clusters=")))
    done = other.run(["sbatch", "--parsable", f"--clusters={other.name}", str(script)], cwd=drill.folder, user=ALICE)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition(";")[0].strip()


def check_starts_nothing(drill: Drill, other: Sandbox, job: str, name: str) -> None:
    """That job fails, and says why; the run knows nothing of it."""
    drill.wait_for(lambda: jobs_on(other, name).get(job) == "FAILED", 60, "the job elsewhere did not end")
    said = (drill.run_dir / f"slurm-{job}.out").read_text()
    assert f"has started on cluster {other.name}, and the run belongs to {drill.sandbox.name}" in said, said
    assert job not in {known.id for known in drill.state().jobs}


def test_a_run_in_a_federation_waits_for_its_own_cluster_and_a_job_of_it_elsewhere_starts_nothing(
    own_sandbox: Callable[..., Sandbox], submit: Submitter
) -> None:
    here, other = make_federation(own_sandbox, 1)
    occupy(here, here.name, 1)
    drill = submit(here)(FLAGS, nodes=1, wait_started=False)
    name = job_name(drill)

    assert int(drill.job) >> 26, "an id of a federation"
    assert clusters_of(here, drill.job) == [here.name]
    check_starts_nothing(drill, other, job := stray(drill, other), name)
    assert jobs_on(other, name) == {job: "FAILED"}, "a node that is free elsewhere does not take the run"
    assert jobs_on(here, name) == {drill.job: "PENDING"} and not drill.state().attempts


@long_only
def test_a_run_in_a_federation_restarts_and_queues_its_next_job_on_its_own_cluster(
    own_sandbox: Callable[..., Sandbox], submit: Submitter
) -> None:
    here, other = make_federation(own_sandbox, 3)
    drill = submit(here)(FLAGS)
    name = job_name(drill)
    later = drill.wait_event("submitted", 2).data["job"]
    assert clusters_of(here, later) == [here.name]
    drill.wait_step(12)
    check_starts_nothing(drill, other, job := stray(drill, other), name)
    assert len(drill.state().attempts) == 1, drill.story()

    drill.kill(drill.ranks()[0])
    drill.wait_event("attempt_started", 2)
    drill.wait_step(30, attempt=2)
    here.crash(drill.state().attempts[-1].nodes[1])
    drill.wait_event("attempt_started", 3, timeout_s=120)
    assert drill.state().attempts[-1].job == later, drill.story()
    check_completes(drill, timeout_s=120)
    assert set(jobs_on(other, name)) == {job}, "no other job of the run was ever there"
