"""On which cluster job.sbatch starts something, without a supervisor: the fallback must keep to it as well."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.pure.script.test_script import MINIMAL, plan_of, rendered


@pytest.mark.parametrize(("of", "here", "is_started"), [
    ("feda", "fedb", False), ("feda", "feda", True), ("feda", "FedA", True), ("feda", None, True), ("", "fedb", True),
], ids=["another", "its own", "in capitals", "no name here", "no name at submit"])
def test_a_job_on_another_cluster_than_the_runs_starts_nothing(
    tmp_path: Path, of: str, here: str | None, is_started: bool
) -> None:
    script = rendered(plan_of(MINIMAL)).replace("SL_CLUSTER=''", f"SL_CLUSTER='{of}'", 1)
    script = script.replace("SL_PYTHON='/usr/bin/python3'", "SL_PYTHON='/nonexistent/python'", 1)
    (tmp_path / "job.sbatch").write_text(script)
    (tmp_path / "srun").write_text(f"#!/bin/bash\ntouch {tmp_path}/trained\n")
    (tmp_path / "srun").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SAFELAUNCH_LOCAL_DIR": str(tmp_path), "SLURMD_NODENAME": "n0",
           "SLURM_JOB_ID": "77"}

    done = subprocess.run(["bash", str(tmp_path / "job.sbatch")], cwd=tmp_path, capture_output=True, text=True,
                          timeout=60, env=env | ({} if here is None else {"SLURM_CLUSTER_NAME": here}))

    assert (tmp_path / "trained").exists() is is_started, done.stdout + done.stderr
    assert ("has started on cluster fedb, and the run belongs to feda" in done.stdout) is not is_started
    assert (done.returncode == 2) is not is_started, done.stdout
