"""The watch on a real Slurm: jobs without a script, jobs that Slurm lost, jobs that can never start.

Its patience is minutes; here it is seconds, set by the words before the command line.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from safelaunch.run.fold.state import State
from safelaunch.sandbox.cluster import Sandbox
from tests.drills import proofs
from tests.drills.test_handover import QUICK, warn
from tests.drills.test_smaller import COPIES, EXTRA
from tests.runs import ALICE, Drill, Submitter

FLAGS = "--step-time 0.05 --save-every 10 --lockstep sync"
HURRY = """
import sys
from safelaunch.verbs.jobs import watch as verb
from safelaunch.watch import watch
from safelaunch.watch.io import watcher
watch.STALE_S, watch.STALE_STANDBY_S, watch.LIVES_S, watch.HUNG_S, watch.STUCK_S, watch.QUIET_S = 20, 25, 20, 45, 2, 20
watcher.FIRST_S, watcher.SOON_S, watcher.LAST_S = 3.0, 2.0, 6.0
verb.TICK_S, verb.GAP_S = 1.0, 0.05
from safelaunch.cli import main
main(sys.argv[1:])
"""
Watching = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def watch() -> Iterator[Watching]:
    """`watch(drill, options…)` begins a watch of that run as sl-alice; it ends with the test."""
    begun: list[subprocess.Popen[str]] = []

    def begin(drill: Drill, *words: str) -> subprocess.Popen[str]:
        begun.append(drill.sandbox.start(
            [str(drill.installation.python), "-c", HURRY, "watch", *words, str(drill.run_dir)], user=ALICE,
            cwd=drill.folder, env={**drill.installation.env, "XDG_STATE_HOME": str(drill.folder / f"s{len(begun)}")}))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def said(process: subprocess.Popen[str]) -> str:
    """All that a watch has said; ends it."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        out, err = process.communicate(timeout=60)
        return out + err
    return "(nothing)"


def wait_end(drill: Drill, *watching: subprocess.Popen[str], timeout_s: float = 120.0) -> State:
    """The run's end; what its watches said goes with a failure."""
    end = time.monotonic() + timeout_s
    while drill.state().ended is None:
        if time.monotonic() > end:
            pytest.fail("\n".join(["the run did not end", *map(said, watching), drill.story()]))
        time.sleep(0.2)
    return drill.wait_end()


def lose_everything(sandbox: Sandbox) -> None:
    """All nodes and slurmctld crash at once, and slurmctld forgets every job."""
    for name in ("ctl", *sandbox.nodes):
        sandbox.crash(name)
    conf = dict(line.split("=", 1) for line in sandbox.conf.read_text().splitlines() if "=" in line)
    for path in Path(conf["StateSaveLocation"]).glob("job_state*"):
        path.unlink()
    for name in ("ctl", *sandbox.nodes):
        sandbox.heal(name)


def test_a_job_without_a_script_is_ended_and_the_run_completes_in_the_next_one(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, watch: Watching
) -> None:
    sandbox = own_sandbox(4)
    drill = submit(sandbox)(f"--steps 150 {FLAGS}", overrides=("standby=false",))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    first = drill.state().attempts[0]

    sandbox.crash(first.nodes[0])
    # As slurmctld does by itself after SlurmdTimeout. A short one is no way here: slurmctld pings no node while a ping
    # is unanswered (src/slurmctld/controller.c). With 10 s that of 24.11 took all nodes for dead in 7 of 26 runs.
    sandbox.slurm(["scontrol", "update", f"NodeName={first.nodes[0]}", "State=DOWN", "Reason=power"])
    watching = watch(drill)
    state = wait_end(drill, watching)

    told = said(watching)
    assert state.ended and state.ended.how == "completed", told + drill.story()
    assert "is in limbo: its batch host n0 is no longer among its nodes" in told
    assert first.job in state.cancelled_jobs and first.nodes[0] in state.excluded
    assert state.attempts[-1].job != first.job and first.nodes[0] not in state.attempts[-1].nodes
    proofs.check_losses(drill, 150, has_lost_log_end=True)


def test_two_watches_bring_a_run_back_once_that_slurm_has_lost(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, watch: Watching
) -> None:
    sandbox = own_sandbox(3)
    drill = submit(sandbox)(f"--steps 150 {FLAGS}")
    drill.wait_event("submitted", 2)
    drill.wait_step(25)

    lose_everything(sandbox)
    watching = [watch(drill), watch(drill)]
    state = wait_end(drill, *watching)

    told = "".join(map(said, watching))
    assert state.ended and state.ended.how == "completed", told + drill.story()
    rescues = [event for event in drill.events("decision") if event.data.get("action") == "queue"]
    assert len(rescues) == 1 and told.count(" was queued to go on: its job has vanished") == 1, told
    proofs.check_losses(drill, 150, has_lost_log_end=True)


@pytest.mark.parametrize("witness", ["squeue", "sacct"])
def test_a_job_that_its_person_cancels_after_its_supervisor_died_is_written_down_as_stopped(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, watch: Watching, witness: str
) -> None:
    sandbox = own_sandbox(2, accounting=witness == "sacct", conf={"MinJobAge": "2"} if witness == "sacct" else {})
    drill = submit(sandbox)(f"--steps 900 {FLAGS}", overrides=("standby=false",))
    successor = drill.wait_event("submitted", 2).data["job"]
    drill.wait_step(5)
    for node in sandbox.nodes:
        sandbox.crash(node)
    sandbox.run(["scancel", drill.job, successor])
    for node in sandbox.nodes:
        sandbox.heal(node)
    if witness == "sacct":
        drill.wait_for(lambda: not sandbox.slurm(["squeue", "-h", "--states=all"]), 90, "Slurm remembers the jobs")
    watching = watch(drill)
    state = wait_end(drill, watching)

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("stopped", 12), said(watching)
    assert state.ended.why.startswith(f"job {drill.job} was cancelled by")
    assert state.ended.why.endswith(f"({witness})")


def test_the_next_job_is_queued_from_outside_where_it_is_asked_for(
    sandbox: Sandbox, submit: Submitter, watch: Watching
) -> None:
    drill = submit(sandbox)(f"{proofs.FLAGS} --handle-usr2", overrides=("restart.via=watch", "kill_switch.grace=1s"))
    watching = watch(drill)
    second = drill.wait_event("submitted", 2, timeout_s=120)
    first = drill.state().attempts[0]
    drill.wait_step(30)
    drill.kill(drill.leader(), signal.SIGUSR2)   # the warning that Slurm gives before the time limit
    drill.wait_event("attempt_started", 2, timeout_s=120)
    told = said(watching)
    proofs.check_completes(drill, 120)

    state = drill.state()
    assert second.gen == 0 and second.data["successor_of"] == first.job, told
    assert "its nodes may not queue one" in told, told
    assert [attempt.job for attempt in state.attempts] == [first.job, second.data["job"]], told + drill.story()
    assert state.restarts == 0


def test_exclusions_of_our_own_that_keep_a_job_from_starting_give_way(
    sandbox: Sandbox, submit: Submitter, watch: Watching
) -> None:
    drill = submit(sandbox)(f"--steps 30 {FLAGS}", overrides=("slurm.begin=now+1hour",), wait_started=False)
    done = sandbox.run(["scontrol", "update", f"JobId={drill.job}", "ExcNodeList=n[0-2]", "StartTime=now"])
    assert done.returncode == 0, done.stderr

    watching = watch(drill)
    state = wait_end(drill, watching)

    told = said(watching)
    assert state.ended and state.ended.how == "completed", told
    assert f"job {drill.job} may use n0 again: is waiting to be scheduled (BadConstraints)" in told
    assert state.attempts[0].nodes == ("n0", "n3")


def test_a_job_that_hangs_at_its_end_does_not_hold_the_run(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, watch: Watching
) -> None:
    sandbox = own_sandbox(4, conf={"KillWait": "2"})
    drill = submit(sandbox)(f"--steps 150 {FLAGS}", overrides=("standby=false", "slurm.time=1"))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    first = drill.state().attempts[0]
    sandbox.crash(first.nodes[1], silent=True)
    sandbox.crash(first.nodes[0])   # its supervisor with it; SlurmdTimeout is 300 s, the job's time limit a minute

    watching = watch(drill)
    state = wait_end(drill, watching, timeout_s=240)

    told = said(watching)
    assert state.ended and state.ended.how == "completed", told + drill.story()
    assert "may start now, without n[0-1]" in told, told
    assert not set(first.nodes) & set(state.attempts[-1].nodes)
    proofs.check_losses(drill, 150, has_lost_log_end=True)


def test_a_watch_that_cannot_see_says_so_and_the_run_is_left_alone(
    sandbox: Sandbox, submit: Submitter, watch: Watching
) -> None:
    drill = submit(sandbox)(proofs.FLAGS)
    drill.wait_event("submitted", 2)
    sandbox.run(["sbatch", "--array=1-5%1", "--job-name=other", "--hold", "--wrap=true"])
    seen = watch(drill, "--once")
    seen.wait(60)
    assert seen.returncode == 0 and "PULSE: drill is running for" in said(seen)

    sandbox.crash("ctl", silent=True)
    try:
        blind = watch(drill, "--once", "--json")
        blind.wait(100)
    finally:
        sandbox.heal("ctl")

    told = [json.loads(line) for line in said(blind).splitlines()]
    assert blind.returncode == 4 and told[0]["kind"] == "blind", told
    proofs.finish(drill)
    state = drill.wait_end(90)
    assert state.ended and state.ended.how == "completed" and len(state.attempts) == 1


@proofs.long_only   # test_smaller has the same ladder by a supervisor, tests/simulation/test_resizing.py with watches
def test_a_next_job_that_lacks_nodes_in_the_queue_is_made_smaller_by_a_watch_and_grows_back(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, watch: Watching
) -> None:
    sandbox = own_sandbox(4)
    drill = submit(sandbox)(proofs.FLAGS, nodes=4, tasks=1, extra=EXTRA.format(hook=COPIES),
                            overrides=(QUICK, "restart.wait_for_nodes=5s"))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    sandbox.slurm(["scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=repair"])   # it runs to the job's end
    warn(drill)
    drill.wait_event("handed_over", timeout_s=90)
    watching = watch(drill)

    small = drill.wait_event("attempt_started", 3, timeout_s=120).data
    assert f"job {small['job']} asks for 3 nodes now" in said(watching), drill.story()
    first, hook, _ = drill.state().attempts
    assert hook.ended == "converted" and (len(small["nodes"]), small["job"] != first.job) == (3, True), drill.story()
    assert small["resume_path"] == hook.resize.output if hook.resize else False, drill.story()
    acts = [event.data for event in drill.events("outcome") if event.data["act"] == "make_smaller"]
    assert [(act["ok"], act["job"], act["nodes"]) for act in acts] == [(True, small["job"], 3)], drill.story()
    drill.wait_step((small["resume_step"] or 0) + 20, attempt=3)

    sandbox.slurm(["scontrol", "update", "NodeName=n3", "State=RESUME"])
    warn(drill)
    full = drill.wait_event("attempt_started", 5, timeout_s=90).data
    assert (len(full["nodes"]), full["job"] != small["job"]) == (4, True), drill.story()
    proofs.check_completes(drill)
