"""Two sandboxes as the clusters of one federation: one slurmdbd, one munge, a common home."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from safelaunch.sandbox import accounting, registry
from safelaunch.sandbox.cluster import Sandbox
from tests.sandboxes import wait_until


def make_federation(own_sandbox: Callable[..., Sandbox], nodes: int) -> tuple[Sandbox, Sandbox]:
    """Both clusters, once each sees the other as an active member; they have nodes of the same names."""
    here = own_sandbox(nodes, gpus=0, accounting=True)
    entry = registry.find(str(here.dir))
    other = own_sandbox(nodes, gpus=0, conf={
        "AuthInfo": f"socket={here.dir}/munge/socket",
        "AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageHost": "localhost",
        "AccountingStoragePort": str(entry.dbd_port), "AccountingStoragePass": f"{here.dir}/munge/socket"})
    clusters = ["sacctmgr", "-n", "-P", "list", "cluster", "format=Cluster"]
    wait_until(lambda: other.name in here.slurm(clusters).split(), 60, "slurmctld did not make its cluster known")
    for argv in accounting.enrol_argv(other.name)[1:]:
        here.slurm(argv)
    here.slurm(["sacctmgr", "-i", "add", "federation", f"of-{here.name}", f"clusters={here.name},{other.name}"])
    for sandbox in (here, other):
        wait_until(partial(_is_synced, sandbox), 60, "the clusters did not find each other")
    return here, other


def _is_synced(sandbox: Sandbox) -> bool:
    return "Synced:Yes" in sandbox.slurm(["scontrol", "show", "federation"])


def occupy(sandbox: Sandbox, cluster: str, nodes: int) -> str:
    """A job of sl-alice that has all nodes of that cluster; its id."""
    done = sandbox.run(["sbatch", "--parsable", f"--clusters={cluster}", f"--nodes={nodes}", "--exclusive",
                        "--output=/dev/null", "--wrap=exec sleep 600"])
    assert done.returncode == 0, done.stderr
    job = done.stdout.partition(";")[0].strip()
    asked = ["squeue", "-h", f"--clusters={cluster}", "-j", job, "-o", "%T"]
    wait_until(lambda: "RUNNING" in sandbox.slurm(asked), 60, "the job does not start")
    return job
