"""How a job hands its run over on sites that forbid things: dependencies, sbatch on nodes, scontrol on nodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests import admin
from tests.drills.proofs import note
from tests.drills.test_watch import HURRY
from tests.runs import ALICE, Drill, Submitter
from tests.trainers.stepping import losses_until

STEPS = 300
QUICK = "kill_switch.grace=1s"   # the training saves at the warning, and goes on until it is killed
FLAGS = f"--steps {STEPS} --step-time 0.05 --save-every 20 --handle-usr2 --lockstep sync"


@pytest.fixture
def strict(own_sandbox: Callable[..., Sandbox]) -> Iterator[Callable[..., Sandbox]]:
    """A sandbox of three nodes that forbids these things."""
    def make(*words: str) -> Sandbox:
        sandbox = own_sandbox(3)
        for word in words:
            admin.forbid(sandbox, word)
        return sandbox

    yield make


def end_soon(drill: Drill) -> None:
    """The warning that Slurm gives before the time limit."""
    drill.kill(drill.leader(), signal.SIGUSR2)


def queue(drill: Drill) -> dict[str, str]:
    """job → STATE|reason|excluded of the run's unfinished jobs."""
    rows = drill.sandbox.slurm(["squeue", "-h", "-o", "%i|%T|%r|%x"]).splitlines()
    return {row.split("|")[0]: row.partition("|")[2] for row in rows}


def wait_requeued(drill: Drill) -> None:
    """It waits in the queue by Slurm's order (BeginTime), or runs again: its supervisor asks for a start soon."""
    drill.wait_for(lambda: queue(drill).get(drill.job, "").startswith("PENDING|BeginTime")
                   or drill.events("job_started")[-1].data["restart_count"], 60, "it was not requeued")


def wait_restarted(drill: Drill) -> None:
    """The requeued job runs: its supervisor has asked for a start within seconds; Slurm itself lets it wait for 121 s,
    which is what comes of it on a machine so slow that the job is not over by then.
    """
    drill.wait_for(lambda: drill.events("job_started")[-1].data["restart_count"] == 1, 300,
                   "the requeued job does not start")
    ended_t = [event.t for event in drill.events("outcome") if event.data["act"] == "requeue"][-1]
    note(drill, "requeued job runs again", drill.events("job_started")[-1].t - ended_t)


def watch_hurried(drill: Drill) -> subprocess.Popen[str]:
    """A watch whose patience is seconds."""
    return drill.sandbox.start([str(drill.installation.python), "-c", HURRY, "watch", str(drill.run_dir)], user=ALICE,
                               cwd=drill.folder, env=drill.installation.env)


def finishes(drill: Drill) -> None:
    """The run completes in its second job, from the checkpoint that the first one left."""
    state = drill.wait_end(240)
    assert state.ended and (state.ended.how, state.ended.exit_code) == ("completed", 0), drill.story()
    first, second = state.attempts
    assert first.ended == "interrupted" and second.resume_step and second.resume_step >= 20
    assert drill.losses() == losses_until(STEPS) and state.restarts == 0


def test_where_dependencies_are_forbidden_the_next_job_is_submitted_when_this_one_ends(
    strict: Callable[..., Sandbox], submit: Submitter
) -> None:
    drill = submit(strict("dependency"))(FLAGS, overrides=(QUICK,))
    assert drill.wait_event("via_chosen").data["via"] == "resubmit"
    assert list(queue(drill)) == [drill.job], "nothing is queued during the job"
    status = drill.as_user("status", str(drill.run_dir)).stdout
    assert re.search(r"next job +nothing is queued behind this job", status), status
    drill.wait_step(30)

    end_soon(drill)
    finishes(drill)
    jobs = [event.data["job"] for event in drill.events("job_started")]
    assert len(jobs) == 2 and jobs[0] != jobs[1]


def test_scancel_of_a_job_that_was_requeued_since_train_yaml_says_so_is_final(
    sandbox: Sandbox, submit: Submitter
) -> None:
    drill = submit(sandbox)(FLAGS, overrides=("restart.via=requeue", QUICK))
    assert drill.wait_event("via_chosen").data["via"] == "requeue"
    drill.wait_step(30)
    assert list(queue(drill)) == [drill.job]
    end_soon(drill)
    wait_requeued(drill)
    wait_restarted(drill)
    drill.wait_event("attempt_started", 2)

    drill.sandbox.run(["scancel", drill.job])
    state = drill.wait_end()
    assert state.ended and (state.ended.how, state.ended.exit_code) == ("stopped", 12), drill.story()
    assert "scancel" in state.ended.why


def test_where_nodes_have_no_sbatch_the_job_is_requeued_waits_for_resume_where_it_is_on_hold_and_keeps_its_id(
    strict: Callable[..., Sandbox], submit: Submitter
) -> None:
    drill = submit(strict("sbatch"))(FLAGS, overrides=(QUICK,))
    assert drill.wait_event("via_chosen").data["via"] == "requeue"
    drill.wait_step(30)
    assert drill.as_user("hold", str(drill.run_dir)).returncode == 0

    end_soon(drill)
    drill.wait_for(lambda: queue(drill).get(drill.job, "").startswith("PENDING|JobHeldUser"), 60, "it is not held")
    assert drill.state().ended is None
    done = drill.as_user("resume", str(drill.run_dir))
    assert done.returncode == 0 and f"job {drill.job} is released" in done.stderr, done.stderr
    wait_restarted(drill)

    finishes(drill)
    starts = drill.events("job_started")
    assert [(start.data["job"], start.data["restart_count"]) for start in starts] == [(drill.job, 0), (drill.job, 1)]


def test_where_nodes_have_neither_a_watcher_queues_the_next_job(
    strict: Callable[..., Sandbox], submit: Submitter
) -> None:
    drill = submit(strict("sbatch", "scontrol"))(FLAGS.replace("0.05", "0.2"), overrides=(QUICK,))
    assert drill.wait_event("via_chosen").data["via"] == "watch"
    watching = watch_hurried(drill)
    try:
        drill.wait_for(lambda: len(queue(drill)) == 2, 120, "the watcher queued nothing")
        drill.wait_step(20)
        end_soon(drill)
        finishes(drill)
    finally:
        watching.kill()
        drill.noise += watching.communicate()


def test_without_a_watcher_the_run_says_what_it_needs(strict: Callable[..., Sandbox], submit: Submitter) -> None:
    drill = submit(strict("sbatch", "scontrol"))(FLAGS, overrides=(QUICK,))
    drill.wait_event("via_chosen")
    drill.wait_step(30)

    end_soon(drill)
    need = drill.wait_event("need_successor", timeout_s=60)
    drill.wait_for(lambda: not drill.jobs(), 40, "the job did not end")
    assert "time limit" in need.data["why"] and drill.state().ended is None
    assert "safelaunch watch" in drill.story()


def test_a_slurmctld_that_is_away_at_the_hand_over_gets_one_job(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)(FLAGS, overrides=("restart.via=resubmit", QUICK))
    assert drill.wait_event("via_chosen").data["via"] == "resubmit"
    drill.wait_step(30)
    assert list(queue(drill)) == [drill.job]
    sandbox.crash("ctl", silent=True)
    end_soon(drill)
    drill.wait_for(lambda: [event for event in drill.events("intent") if event.data["act"] == "hand_over"], 60,
                   "nothing is handed over")
    time.sleep(12)   # a client gives up after 10 s
    sandbox.heal("ctl")
    finishes(drill)
    assert len(drill.events("submitted")) == 2


def test_after_a_takeover_the_standby_requeues_the_job_without_the_dead_node(
    strict: Callable[..., Sandbox], submit: Submitter
) -> None:
    drill = submit(strict("sbatch"))(FLAGS.replace("300", "600"))
    drill.wait_event("standby_started", timeout_s=60)
    drill.wait_step(30)
    host = drill.state().attempts[0].nodes[0]
    drill.sandbox.crash(host)

    drill.wait_for(lambda: "requeue" in [event.data["act"] for event in drill.events("outcome")], 150, "no requeue")
    drill.wait_for(lambda: queue(drill).get(drill.job, "").endswith(f"|{host}"), 60, "the dead node is not kept out")
    drill.sandbox.heal(host)
    drill.wait_for(lambda: queue(drill).get(drill.job, "").startswith("PENDING"), 60, "the job hangs")
    watching = watch_hurried(drill)   # its supervisor could not know how long the job would hang
    try:
        second = drill.wait_event("attempt_started", 2, timeout_s=180)
    finally:
        watching.kill()
        told = "".join(watching.communicate())
    assert "was requeued by safelaunch, and Slurm holds it back for two minutes" in told, told
    assert host not in second.data["nodes"] and second.data["job"] == drill.job
    assert not [event for event in drill.events("intent") if event.data["act"] == "cancel"]
    drill.as_user("stop", "--now", str(drill.run_dir))
    state = drill.wait_end()
    assert state.ended and state.ended.how == "stopped"
    assert os.path.exists(drill.run_dir)
