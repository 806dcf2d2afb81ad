"""`safelaunch attach` on a real Slurm: it sees a plain job hang and end, tells, and does nothing to it."""

from __future__ import annotations

from pathlib import Path

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import ALICE, Installation
from tests.sandboxes import make_workdir, wait_until

TRAIN = """\
import os, time
rank = int(os.environ["SLURM_PROCID"])
def save_extra():
    while True:
        time.sleep(600)
def all_reduce():
    while True:
        time.sleep(600)
for step in range(30):
    print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
    time.sleep(0.1)
save_extra() if rank == 1 else all_reduce()
"""


def test_attach_tells_of_a_hang_and_of_the_end_of_a_plain_job_and_leaves_it_alone(
    sandbox: Sandbox, installation: Installation
) -> None:
    work = make_workdir(sandbox)
    work.chmod(0o755)
    (work / "train.py").write_text(TRAIN)
    (work / "job.sh").write_text(f"#!/bin/bash\n#SBATCH -N2 --ntasks-per-node=2 -J plain -t 30 -o {work}/out\n"
                                 f"srun /usr/bin/python3 {work}/train.py\n")
    (work / "tell").write_text(f"#!/bin/sh\ncat >>{work}/told\n")
    (work / "tell").chmod(0o755)
    (work / "told").touch(0o666)
    (work / "told").chmod(0o666)
    (work / "out").touch()
    (work / "out").chmod(0o666)
    job = sandbox.run(["sbatch", "--parsable", "job.sh"], user=ALICE, cwd=work).stdout.strip()
    words = [*installation.argv, "attach", job]
    wait_until(lambda: "step 5" in (work / "out").read_text(), 60, "the job makes no step")

    refused = sandbox.run([*words], user="sl-bob", cwd=Path("/"))
    attached = sandbox.start([*words, "hang.no_progress=5s", f"notify.command=[{work}/tell]",
                              "notify.when=[hang, stopped]"], user=ALICE, cwd=work)
    wait_until(lambda: "may hang" in (work / "told").read_text(), 120, "nobody was told of the hang")
    state = sandbox.slurm(["squeue", "-h", "-j", job, "-o", "%T"]).strip()
    sandbox.run(["scancel", job], user=ALICE, cwd=work)
    code = attached.wait(timeout=120)

    assert refused.returncode == 2 and "belongs to sl-alice" in refused.stderr
    assert state == "RUNNING"
    told = (work / "told").read_text()
    assert f"job {job} (plain) hangs: no step for" in told and "save_extra" in told, told
    assert code == 12 and f"job {job} (plain) is CANCELLED" in told, told
    assert not list(work.glob("runs"))
