"""`submit --here`: a run in the job of a shell (salloc), on a real Slurm."""

from __future__ import annotations

import json
import re

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import ALICE, Installation
from tests.sandboxes import make_workdir

ENDLESS = "--steps 100000 --step-time 0.05 --save-every 20"
# What is typed in the shell of the job, beside the run, once it has made steps.
ONCE_IT_TRAINS = "(until grep -qs 'step 5 ' runs/h/attempts/*/main.log; do sleep 0.2; done; {act}) & "


def type_there(sandbox: Sandbox, installation: Installation, flags: str, beside: str = "") -> tuple[list[str], str]:
    """The last lines of a shell in a job of two nodes that types `submit --here`, and all that it said."""
    work = make_workdir(sandbox)
    command = f"{installation.trainer} {flags} --ckpt ckpt ${{RESUME_ARGS}}"
    (work / "train.yaml").write_text(
        f"name: h\ncommand: {json.dumps(command)}\nslurm: {{nodes: 2, ntasks_per_node: 1, time: 30}}\n"
        'launch: {with: srun}\nresume: {dir: ckpt, format: torch, args: "--load {path}"}\n')
    run = " ".join(installation.argv)
    story = f"{beside}{run} submit --here train.yaml; echo \"exit $?\"; squeue --me --noheader --format='%j|%T'"
    done = sandbox.run(["salloc", "--nodes=2", "--job-name=mine", "bash", "-c", story], cwd=work, user=ALICE,
                       env={**installation.env, "XDG_STATE_HOME": f"{work}/.state"}, timeout_s=150)
    said = done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("exit ") or "|" in line], said


def test_it_restarts_from_its_checkpoint_in_the_foreground_and_queues_no_job(
    sandbox: Sandbox, installation: Installation
) -> None:
    last, said = type_there(sandbox, installation,
                            "--steps 40 --step-time 0.02 --save-every 10 --die-at 25 --die-rank 1 --lockstep sync")

    assert last == ["exit 0", "mine|RUNNING"], said   # no next job, and the shell's job has its name again
    assert "not used: slurm.time\n" in said and "no next job goes on behind it" in said
    assert "step 40 loss" in said and re.search(r"attempt 1 failed after .* from step 20", said), said


@pytest.mark.parametrize(("act", "expected"), [
    ("scancel $SLURM_JOB_ID", "exit 12"), ("touch runs/h/control/kill-now", "exit 12"),
], ids=["scancel", "kill switch"])
def test_a_persons_end_is_final_also_where_nothing_signals_the_supervisor(
    act: str, expected: str, sandbox: Sandbox, installation: Installation
) -> None:
    last, said = type_there(sandbox, installation, ENDLESS, ONCE_IT_TRAINS.format(act=act))

    assert last[0] == expected, said
