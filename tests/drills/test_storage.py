"""Frozen, full and read-only filesystems under the run folder."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import in_long
from tests.frozen import FuseMount, LoopMount
from tests.patience import stand
from tests.runs import ALICE, Drill, Installation, Submitter
from tests.sandboxes import make_workdir
from tests.trainers.stepping import losses_until

FREEZE_S = 30.0
STEP_S = 0.1


def stamp_times(drill: Drill) -> list[list[int]]:
    return [[int(line.split()[0]) for line in path.read_text().splitlines()]
            for path in (drill.folder / "stamps").iterdir()]


@pytest.mark.parametrize("freezable", ["fsfreeze", in_long("stopped-fuse")], indirect=True)
def test_frozen_log_filesystem_does_not_cost_the_training_a_step(
    sandbox: Sandbox, submit: Submitter, freezable: LoopMount | FuseMount
) -> None:
    drill = submit(sandbox)(f"--steps 450 --step-time {STEP_S} --stamp-dir stamps --save-every 1000",
                            overrides=(f"run_dir={freezable.path}/drill",))
    drill.wait_step(20)

    freezable.freeze()
    frozen_t = time.time()
    longest_s, stood_s = stand(FREEZE_S)   # how long the filesystem is frozen is the fault
    thawed_t = time.time()
    freezable.thaw()
    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed" and len(state.attempts) == 1, drill.story()
    for times in stamp_times(drill):
        assert len(times) == 450
        during = [t / 1e9 for t in times if frozen_t < t / 1e9 < thawed_t]
        gap_s = max(later - sooner for sooner, later in itertools.pairwise([frozen_t, *during, thawed_t]))
        assert gap_s < STEP_S + 1.0 + longest_s, f"a rank stood still for {gap_s:.1f} s, the test {longest_s:.1f} s"
        assert len(during) > 0.7 * (thawed_t - frozen_t - stood_s) / STEP_S
    for rank in range(4):
        assert drill.losses(rank) == losses_until(450), "every line is there"


@pytest.mark.parametrize("freezable", [in_long("fsfreeze"), "stopped-fuse"], indirect=True)
def test_supervisor_killed_while_the_folder_is_frozen_comes_back_and_the_training_goes_on(
    sandbox: Sandbox, submit: Submitter, freezable: LoopMount | FuseMount
) -> None:
    drill = submit(sandbox)(f"--steps 300 --step-time {STEP_S} --stamp-dir stamps --save-every 1000",
                            overrides=(f"run_dir={freezable.path}/drill",))
    drill.wait_step(20)
    leader = drill.leader()

    freezable.freeze()
    drill.kill(leader)
    time.sleep(15)   # longer than the lease
    freezable.thaw()
    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed" and len(state.attempts) == 1, drill.story()
    assert drill.losses() == losses_until(300)


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_full_or_read_only_run_folder_is_a_clear_error_and_nothing_is_submitted(
    sandbox: Sandbox, installation: Installation, loop_mount: LoopMount, fault: str
) -> None:
    work = make_workdir(sandbox)
    (work / "train.yaml").write_text("name: drill\ncommand: 'true'\n")
    if fault == "full":
        subprocess.run(["dd", "if=/dev/zero", f"of={loop_mount.path}/filler", "bs=64K"], user=ALICE, check=False,
                       capture_output=True)
        subprocess.run(["dd", "if=/dev/zero", f"of={loop_mount.path}/filler2", "bs=512"], user=ALICE, check=False,
                       capture_output=True)
    else:
        loop_mount.read_only()

    done = sandbox.run([*installation.argv, "submit", "train.yaml", f"run_dir={loop_mount.path}/drill"], cwd=work,
                       env=installation.env)

    assert done.returncode == 2, done.stdout + done.stderr
    assert "nothing was submitted" in done.stderr
    assert ("No space left" in done.stderr) if fault == "full" else ("Read-only" in done.stderr)
    assert not os.path.exists(loop_mount.path / "drill" / "run.json")
    assert sandbox.slurm(["squeue", "-h"]).strip() == ""


def test_slurmctld_stopped_for_a_minute_during_submit_makes_exactly_one_job(
    sandbox: Sandbox, installation: Installation
) -> None:
    work = make_workdir(sandbox)
    (work / "train.yaml").write_text("name: drill\ncommand: sleep 60\n")
    sandbox.crash("ctl", silent=True)

    submitting = sandbox.start([*installation.argv, "submit", "train.yaml", "--json"], cwd=work, env=installation.env)
    time.sleep(60)   # how long slurmctld is stopped is the fault
    sandbox.heal("ctl")
    told, noise = submitting.communicate(timeout=120)

    assert submitting.returncode == 0, told + noise
    name = f"drill.{json.loads(told)['run_id']}"
    jobs = sandbox.slurm(["squeue", "-h", "--states=all", f"--name={name}", "-o", "%i %T %E"]).splitlines()
    assert [line for line in jobs if line.split()[0] == json.loads(told)["job"]], "\n".join(jobs)
    assert len([line for line in jobs if "afterany" not in line]) == 1, "\n".join(jobs)
