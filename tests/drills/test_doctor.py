"""safelaunch doctor on a real Slurm that forbids things: what harms a run, and the way that remains."""

from __future__ import annotations

import json
from collections.abc import Callable

from safelaunch.sandbox.cluster import Sandbox
from tests import admin
from tests.runs import ALICE, Installation
from tests.sandboxes import make_workdir, wait_until


def test_doctor_names_what_a_site_forbids_with_the_way_that_remains_and_leaves_no_job(
    own_sandbox: Callable[..., Sandbox], installation: Installation
) -> None:
    sandbox = own_sandbox(2, conf={"SlurmdTimeout": "0", "PrivateData": "jobs"})
    for word in ("dependency", "sbatch"):
        admin.forbid(sandbox, word)
    work = make_workdir(sandbox)
    done = sandbox.run([*installation.argv, "doctor", str(work), "--job", "--json"], user=ALICE, cwd=work,
                       env=installation.env, timeout_s=120)
    said = json.loads(done.stdout)
    rows = {row["check"]: row for row in said["rows"]}
    harms = {name: rows[name]["verdict"] for name in ("dependencies", "dead nodes", "PrivateData", "nodes: sbatch")}
    assert set(harms.values()) == {"caution"}, done.stdout
    assert "via: auto" in rows["dependencies"]["setting"] and "watch" in rows["nodes: sbatch"]["setting"]
    well = {name: rows[name]["verdict"] for name in ("release", "sbatch", "nodes: scontrol", "nodes: overlap",
                                                     "nodes: ports", "link")}
    assert set(well.values()) == {"ok"}, done.stdout
    assert said["v"] == 1 and said["ok"] and done.returncode == 0 and said["job"]
    wait_until(lambda: not sandbox.slurm(["squeue", "-h"]).strip(), 60, "its job is left")
    assert list(work.iterdir()) == []
