"""The run goes on in the next job, and sites are kept for people."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from safelaunch.sandbox.cluster import Sandbox
from tests.drills import proofs
from tests.runs import Drill, Submitter
from tests.trainers.stepping import losses_until
from tests.users import open_paths

FAILING = "--die-at 3 --die-rank 2 --die-attempt 0 --exit-code 9 --save-every 1000 --lockstep sync"


def test_time_limit_costs_no_budget_and_the_successor_goes_on(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 5000 --step-time 0.05 --save-every 9000 --handle-usr2",
                            overrides=("slurm.time=2",))

    second = drill.wait_event("attempt_started", 2, timeout_s=150)

    first = drill.state().attempts[0]
    assert second.data["job"] != first.job and first.ended == "interrupted", drill.story()
    assert second.data["resume_step"] > 100, "the warning made the training save"
    assert drill.state().restarts == 0
    drill.wait_step(second.data["resume_step"] + 2, attempt=2)
    umasks = {umask for pid in drill.ranks()
              for umask in re.findall(r"Umask:\s(\d+)", Path(f"/proc/{pid}/status").read_text())}
    assert umasks == {"0022"}, "the training has the submitter's umask in each job"
    drill.as_user("stop", "--now", str(drill.run_dir))
    state = drill.wait_end()
    assert state.ended and state.ended.how == "stopped"
    last = max(drill.losses())
    assert drill.losses() == {step: loss for step, loss in losses_until(5000).items() if step <= last}
    assert open_paths(drill.run_dir) == [], "others may look into the run"


@proofs.rounds
def test_next_job_is_under_way_within_seconds_of_the_end_of_the_one_before(
    sandbox: Sandbox, submit: Submitter, turn: int
) -> None:
    drill = submit(sandbox)(f"{proofs.FLAGS} --handle-usr2", overrides=(QUICK,))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)

    warn(drill)
    drill.wait_for(lambda: not [job for job in drill.jobs() if job == f"{drill.job} RUNNING"], 60, "the job goes on")
    ended_t = time.time()
    drill.wait_event("attempt_started", 2, timeout_s=60)
    drill.wait_for(lambda: drill.log(2), 60, "no line of the next attempt")
    proofs.note(drill, "job ended, first line of the next job's attempt", time.time() - ended_t)
    assert proofs.running_again_s(drill, ended_t, 2, "job ended, training again in the next job") < 30, drill.story()
    proofs.check_completes(drill)


@proofs.rounds
def test_next_job_does_not_wait_for_one_that_hangs_at_its_end_on_a_silent_node(
    sandbox: Sandbox, submit: Submitter, turn: int
) -> None:
    drill = submit(sandbox)(proofs.FLAGS)
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    worker = drill.state().attempts[0].nodes[1]

    silent_t = proofs.crash(sandbox, worker, silent=True)
    second = drill.wait_event("attempt_started", 2, timeout_s=90)

    assert worker not in second.data["nodes"] and second.data["resume_step"] >= 20, drill.story()
    states = dict(line.split() for line in sandbox.slurm(["squeue", "-h", "-o", "%i %T"]).splitlines())
    assert states[drill.job] == "COMPLETING" and second.data["job"] != drill.job, drill.story()
    drill.wait_for(lambda: drill.log(2), 60, "no line of the next attempt")
    proofs.note(drill, "node silent, first line of the next job's attempt", time.time() - silent_t)
    assert time.time() - silent_t < 60, drill.story()
    proofs.check_completes(drill)
    assert [node for node, _ in drill.state().suspects] == [worker]


def test_person_who_cancels_the_next_job_ends_the_run_with_this_one(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 5000 --step-time 0.05 --save-every 10 --lockstep sync")
    successor = drill.wait_event("submitted", 2).data["job"]
    drill.wait_step(20)

    sandbox.run(["scancel", successor])
    sandbox.crash(drill.state().attempts[0].nodes[1])   # a reason to hand over
    state = drill.wait_end(90)

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("stopped", 12), drill.story()
    assert "cancelled the run's next job" in state.ended.why


LONG = "--steps 5000 --step-time 0.05 --save-every 20 --lockstep sync"
QUICK = "kill_switch.grace=1s"


def warn(drill: Drill) -> None:
    """What Slurm does before the time limit: a reason to hand over."""
    drill.kill(drill.leader(), signal.SIGUSR2)


def test_next_job_that_slurm_has_forgotten_was_cancelled_by_a_person(
    own_sandbox: Callable[..., Sandbox], submit: Submitter
) -> None:
    sandbox = own_sandbox(2, accounting=True, conf={"MinJobAge": "2"})
    drill = submit(sandbox)(LONG, overrides=(QUICK,))
    successor = drill.wait_event("submitted", 2).data["job"]
    drill.wait_step(25)
    sandbox.run(["scancel", successor])
    drill.wait_for(lambda: sandbox.run(["squeue", "-j", successor]).returncode == 1, 90, "squeue remembers the job")

    warn(drill)
    state = drill.wait_end(60)
    assert state.ended and (state.ended.how, state.ended.exit_code) == ("stopped", 12), drill.story()
    assert drill.events("successor_cancelled") and len(drill.events("submitted")) == 2


def test_restarts_within_a_job_go_on_although_its_next_one_was_cancelled(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 60 --step-time 0.05 --save-every 10 --lockstep sync --die-at 30")
    successor = drill.wait_event("submitted", 2).data["job"]
    sandbox.run(["scancel", successor])

    state = drill.wait_end()
    assert state.ended and state.ended.how == "completed", drill.story()
    assert len(state.attempts) == 2 and len(drill.events("submitted")) == 2


def test_next_job_that_was_cancelled_and_queued_again_by_hand_goes_on(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)(LONG.replace("5000", "400"), overrides=(QUICK,))
    successor = drill.wait_event("submitted", 2).data["job"]
    drill.wait_step(25)
    sandbox.run(["scancel", successor])
    words = [f"--chdir={drill.folder}", f"--dependency=afterany:{drill.job},singleton", f"{drill.run_dir}/job.sbatch"]
    again = sandbox.run(["sbatch", "--parsable", *words]).stdout.strip()

    warn(drill)
    state = drill.wait_end(90)
    assert state.ended and state.ended.how == "completed", drill.story()
    assert [event.data["job"] for event in drill.events("job_started")] == [drill.job, again]


def test_teammates_hold_by_the_file_alone_leaves_one_job_that_is_held(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)(LONG.replace("5000", "400"), overrides=(QUICK, "kill_switch.group=sl-team"))
    successor = drill.wait_event("submitted", 2).data["job"]
    drill.wait_step(25)
    done = sandbox.run(["touch", str(drill.run_dir / "control" / "hold")], user="sl-bob")
    assert done.returncode == 0, done.stderr

    warn(drill)
    drill.wait_for(lambda: drill.jobs() == [f"{successor} PENDING"], 60, "the job on hold did not end")
    assert sandbox.slurm(["squeue", "-h", "-j", successor, "-o", "%r"]).strip() == "JobHeldUser"
    assert drill.as_user("resume", str(drill.run_dir)).returncode == 0
    state = drill.wait_end(90)
    assert state.ended and state.ended.how == "completed", drill.story()
    assert len(drill.events("job_started")) == 2


def test_job_that_starts_on_hold_queues_one_that_is_held(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 20", overrides=("slurm.begin=now+1hour", "kill_switch.group=sl-team"),
                            wait_started=False)
    assert sandbox.run(["touch", str(drill.run_dir / "control" / "hold")], user="sl-bob").returncode == 0
    sandbox.slurm(["scontrol", "update", f"JobId={drill.job}", "StartTime=now"])

    handed = drill.wait_event("handed_over", timeout_s=60).data["job"]
    drill.wait_for(lambda: drill.jobs() == [f"{handed} PENDING"], 60, "not one job")
    assert sandbox.slurm(["squeue", "-h", "-j", handed, "-o", "%r"]).strip() == "JobHeldUser"
    assert not drill.state().attempts
    assert drill.as_user("stop", str(drill.run_dir)).returncode == 0
    state = drill.wait_end()
    assert state.ended and state.ended.how == "stopped" and "taken out of the queue" in state.ended.why


def test_preserved_site_keeps_only_nodes_that_people_need_says_how_to_get_in_and_is_released(
    sandbox: Sandbox, submit: Submitter
) -> None:
    drill = submit(sandbox)(FAILING, nodes=4, tasks=1,
                            extra="preserve_site: {for: 1h, when: [unknown, host_oom]}\n",
                            overrides=("restart.max_without_progress=1",))
    preserved = drill.wait_event("preserved", timeout_s=60)

    assert preserved.data["nodes"] == ["n0", "n2"]
    drill.wait_for(lambda: sandbox.slurm(["squeue", "-h", "-j", drill.job, "-o", "%D"]).strip() == "2", 60,
                   "the other nodes were not given back")
    status = drill.as_user("status", str(drill.run_dir))
    assert "preserv" in status.stdout.lower() and "safelaunch shell" in status.stdout + status.stderr

    done = drill.as_user("release", str(drill.run_dir))
    state = drill.wait_end()

    assert done.returncode == 0 and drill.events("released")
    assert state.ended and (state.ended.how, state.ended.exit_code) == ("gave_up", 10)


def test_supervisor_of_a_replaced_run_folder_leaves_the_new_one_alone(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 2000 --step-time 0.05")
    drill.wait_step(3)
    moved = drill.run_dir.with_name("moved")
    drill.run_dir.rename(moved)
    subprocess.run(["cp", "-a", str(moved), str(drill.run_dir)], check=True)
    before = {path.name for path in (drill.run_dir / "claims").iterdir()}

    drill.wait_for(lambda: drill.leader() is None, 60, "the leader went on in a folder that is not its own")

    assert {path.name for path in (drill.run_dir / "claims").iterdir()} == before
    sandbox.run(["scancel", "--user=sl-alice"])
