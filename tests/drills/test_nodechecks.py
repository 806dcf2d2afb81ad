"""Checks of nodes on a real Slurm: by hand, inside a job and as short jobs of their own."""

from __future__ import annotations

import json
from typing import Any

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import ALICE, Installation
from tests.sandboxes import make_workdir, wait_until

# This machine's own matter, shared by all its nodes (other tests stop the servers of their mounts); no name of a
# sandbox's node has an address.
SKIP = " ".join(f"--skip {name}" for name in ("load", "stuck", "python", "memory", "name", "mount"))
JOB = """\
#!/bin/bash
#SBATCH -N 4 -t 5 --no-kill --gpus-per-node=2
until [[ -e go ]]; do sleep 0.1; done
{argv} nodes check --json --deadline 10 --path {work} {skip} >inside.json 2>inside.err
echo $? >code
"""


def bad(said: dict[str, Any]) -> dict[str, str]:
    """All but good nodes, and slow ones: they share a disk with whatever else this machine does."""
    return {row["node"]: row["state"] for row in said["nodes"] if row["state"] not in ("good", "slow or odd")}


def test_a_job_checks_its_nodes_and_a_silent_one_costs_its_deadline_while_idle_nodes_get_jobs_of_their_own(
    sandbox: Sandbox, installation: Installation
) -> None:
    work = make_workdir(sandbox)
    env = " ".join(f"{key}={value}" for key, value in installation.env.items())
    argv = f"env {env} {' '.join(installation.argv)}"
    (work / "job.sh").write_text(JOB.format(argv=argv, work=work, skip=SKIP))
    job = sandbox.run(["sbatch", "--parsable", "job.sh"], user=ALICE, cwd=work).stdout.strip()
    shown = ["squeue", "-h", "-j", job, "-o", "%T %B"]
    wait_until(lambda: sandbox.slurm(shown).startswith("RUNNING"), 60, "the job does not start")
    worker = sorted(set(sandbox.nodes) - {sandbox.slurm(shown).split()[1]})[0]
    sandbox.crash(worker, silent=True)
    (work / "go").touch()
    wait_until(lambda: (work / "code").exists() and bool((work / "code").read_text()), 60, "the checks do not end")
    sandbox.heal(worker)

    said = json.loads((work / "inside.json").read_text())
    assert (work / "code").read_text().strip() == "13" and said["ok"] is False
    assert bad(said) == {worker: "no answer"} and len(said["nodes"]) == 4, [row["reasons"] for row in said["nodes"]]
    assert said["took_s"] < 32, "6 s to start, 10 s for the checks, 10 s for the answer"
    wait_until(lambda: not sandbox.slurm(["squeue", "-h"]).strip(), 60, "the job is left")

    done = sandbox.run([*installation.argv, "nodes", "check", "n[0-1]", "--json", *SKIP.split(), "--",
                        "--partition=main"], user=ALICE, cwd=work, env=installation.env, timeout_s=180)
    assert done.returncode == 0 and json.loads(done.stdout)["ok"], f"{done.stdout}{done.stderr}"
    assert {row["node"] for row in json.loads(done.stdout)["nodes"]} == {"n0", "n1"}
    wait_until(lambda: not sandbox.slurm(["squeue", "-h"]).strip(), 60, "a job of the checks is left")
