"""The supervisor can die at any moment, and so can the pump; the training and its log go on."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS, finish, wait_standby
from tests.runs import Drill, Submitter
from tests.trainers.stepping import losses_until

MOMENTS = 20 if os.environ.get("SAFELAUNCH_LONG") else 2   # each seed of the simulation that kills one adds a moment


def test_training_goes_on_and_supervision_is_back_within_seconds(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 150 --step-time 0.05 --stamp-dir stamps")
    drill.wait_step(10)
    leader = drill.leader()

    drill.kill(leader)
    killed = time.time()
    took_over = drill.wait_event("took_over")

    assert took_over.t - killed < 20, drill.story()
    state = drill.wait_end()
    assert state.ended and state.ended.how == "completed" and len(state.attempts) == 1
    assert drill.losses() == losses_until(150)


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_supervisor_killed_at_any_moment_leaves_one_job_and_loses_nothing(
    sandbox: Sandbox, submit: Submitter, moment: int
) -> None:
    pause_s = random.Random(moment).uniform(0.0, 3.5)
    drill = submit(sandbox)("--steps 60 --step-time 0.04 --save-every 10 --die-at 35 --lockstep sync",
                            wait_started=False)
    drill.wait_for(drill.leader, 60, "no leader was born")
    time.sleep(pause_s)   # the moment is the fault's parameter, not a wait for something

    leader = drill.leader()
    if leader is not None:
        drill.kill(leader)
    state = drill.wait_end()

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("completed", 0), drill.story()
    assert len(state.attempts) == 2, drill.story()
    assert drill.losses() == losses_until(60), drill.story()
    assert not drill.ranks()


def test_supervisor_that_dies_again_and_again_leaves_the_training_to_end_alone(
    sandbox: Sandbox, submit: Submitter
) -> None:
    drill = submit(sandbox)(FLAGS, overrides=("standby=false",))
    drill.wait_step(3)
    kill_leaders(drill)
    last = finish(drill)
    drill.wait_for(lambda: not [job for job in drill.jobs() if job.startswith(drill.job)], 60, "the job did not end")

    shown = sandbox.slurm(["scontrol", "show", "job", drill.job])
    assert "ExitCode=0:0" in shown, shown + drill.story()
    assert drill.losses() == losses_until(last), drill.story()


def test_supervisor_that_dies_again_and_again_leaves_the_job_to_the_standby(
    sandbox: Sandbox, submit: Submitter
) -> None:
    """The training of the dead one ends at the takeover, its batch script does not, and the job goes on. (On a busy
    machine its node can count as lost by then: the run goes on in the next job.)
    """
    drill = submit(sandbox)(FLAGS)
    standby = wait_standby(drill)
    drill.wait_step(25)
    kill_leaders(drill)
    second = drill.wait_event("attempt_started", 2)

    drill.wait_for(lambda: "this one stands by" in drill.story(), 60, "the batch script did not go on")
    last = finish(drill)
    state = drill.wait_end()
    assert second.data["resume_step"] >= 20 and not drill.events("ended_alone"), drill.story()
    assert state.ended and state.ended.how == "completed", drill.story()
    moved = [one.data["row"] for one in drill.events("decision") if one.data["row"] == "too_few_nodes"]
    assert moved or (second.host, second.data["job"]) == (standby, drill.job), drill.story()
    assert drill.losses() == losses_until(last), drill.story()


def test_standby_on_the_node_of_the_batch_script_leaves_its_place_alone(sandbox: Sandbox, submit: Submitter) -> None:
    """A leader on another node may ask for one there while the batch script is still without a supervisor."""
    drill = submit(sandbox)(FLAGS, overrides=("standby=false",))
    drill.wait_step(3)
    host, leader = drill.events("attempt_started")[0].host, drill.leader()

    step = sandbox.run(
        ["srun", f"--jobid={drill.job}", "--overlap", "--nodes=1", "--ntasks=1", "--mem=0", f"--nodelist={host}",
         "bash", str(drill.run_dir / "job.sbatch"), "standby"], cwd=drill.folder, env=drill.env)

    assert step.returncode == 0 and drill.leader() == leader, drill.story()
    drill.kill(leader)   # born again out of the same place
    last = finish(drill)
    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed" and len(state.attempts) == 1, drill.story()
    assert drill.losses() == losses_until(last)


def kill_leaders(drill: Drill) -> None:
    """Kill the batch host's supervisor whenever it is born, until its script goes on without one."""
    while "training does, unsupervised" not in drill.story():
        drill.wait_for(lambda: drill.leader() or "training does, unsupervised" in drill.story(), 60, "no leader")
        leader = drill.leader()
        if leader is not None:
            drill.kill(leader)
            drill.wait_for(partial(_is_gone, leader), 60, "the leader did not die")


def _is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_supervisor_that_stood_still_blames_nobody_for_its_own_silence(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 500 --step-time 0.05")
    drill.wait_step(10)
    leader = drill.leader()

    drill.kill(leader, signal.SIGSTOP)
    time.sleep(15)   # longer than a lease
    drill.kill(leader, signal.SIGCONT)
    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed", drill.story()
    assert len(state.attempts) == 1 and not state.suspects, drill.story()
    assert drill.losses() == losses_until(500)


def test_suspended_job_goes_on_from_its_checkpoint_and_costs_no_budget(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 400 --step-time 0.05 --save-every 10")
    drill.wait_step(30)

    sandbox.slurm(["scontrol", "suspend", drill.job])
    time.sleep(16)   # longer than a lease and the guards' margin
    sandbox.slurm(["scontrol", "resume", drill.job])
    state = drill.wait_end()

    assert state.ended and state.ended.how == "completed", drill.story()
    assert state.restarts == 0 and not state.suspects, drill.story()
    assert drill.losses() == losses_until(400)


def test_killed_pump_loses_no_line(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 300 --step-time 0.03")
    for step in (10, 40, 70):
        drill.wait_step(step)
        drill.wait_for(lambda: drill.pids("pump.py"), 60, "no pump runs")
        for pump in drill.pids("pump.py"):
            drill.kill(pump)

    drill.wait_end()

    for rank in range(4):
        assert drill.losses(rank) == losses_until(300)
    assert len(drill.log(1).splitlines()) == 4 * 301, "no line twice, none lost"
