"""A cluster that holds jobs to their memory and devices by cgroups, as most do (`sandbox up --cgroup`).

Any drill runs on such a sandbox with SAFELAUNCH_SANDBOX=cgroup.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.sandbox import cgroups
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS, check_completes, long_only, note, rounds, running_again_s, wait_standby
from tests.runs import Drill, Submitter, parent_of

MEMORY_MB = 150
SMALL = f"slurm.mem={MEMORY_MB}"


@rounds
def test_rank_over_the_jobs_memory_is_named_with_its_node_and_the_run_goes_on_without_blame(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, turn: int
) -> None:
    drill = submit(own_sandbox(3, cgroup=True))(f"{FLAGS} --eat-at 25 --die-rank 2 --eat-mb 400", overrides=(SMALL,))

    second = drill.wait_event("attempt_started", 2, timeout_s=60)

    verdict = json.loads(drill.as_user("why", "--json").stdout)["verdict"]
    assert (verdict["category"], verdict["host"], verdict["rank"]) == ("host_oom", "n1", 2), verdict
    assert re.search("oom.kill event", verdict["evidence"][0]["text"]) and not verdict["suspects"], verdict
    assert second.data["job"] == drill.job and second.data["resume_step"] == 20, drill.story()
    failed = drill.wait_event("attempt_ended")
    running_again_s(drill, failed.t, 2, "rank over its memory, training again in place")
    check_completes(drill)
    assert not drill.state().suspects, drill.story()


@rounds
@pytest.mark.parametrize("index", [0, pytest.param(1, marks=long_only)], ids=["batch host", "worker"])
def test_node_whose_job_was_frozen_writes_nothing_when_it_is_thawed_beside_its_successors(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, index: int, turn: int
) -> None:
    sandbox = own_sandbox(3, cgroup=True)
    drill = submit(sandbox)(FLAGS, overrides=("spare_nodes=1",))
    wait_standby(drill)
    drill.wait_step(25)
    node = drill.state().attempts[0].nodes[index]
    group = cgroups.freezer_of(sandbox.dir, node)
    assert group is not None

    (group / "freezer.state").write_text("FROZEN")
    try:
        frozen_t = time.time()
        second = drill.wait_event("attempt_started", 2, timeout_s=60)
        what = "batch host" if index == 0 else "worker"
        running_again_s(drill, frozen_t, 2, f"{what} frozen, training again in place")
        assert len(drill.ranks(node)) == 2, "what is frozen does not die"
    finally:
        cgroups.thaw(group)
    drill.wait_for(lambda: not drill.ranks(node), 60, "its ranks live on")

    assert second.data["job"] == drill.job and node not in second.data["nodes"], drill.story()
    check_completes(drill, has_lost_log_end=index == 0)


@long_only
@rounds
def test_supervisor_that_the_kernel_kills_for_memory_is_born_again_and_the_training_goes_on(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, turn: int
) -> None:
    sandbox = own_sandbox(3, cgroup=True)
    drill = submit(sandbox)(FLAGS, overrides=(SMALL,))
    drill.wait_step(15)
    leader = drill.leader()
    assert leader is not None

    died_t = time.time()
    kill_for_memory(drill, leader)
    took_over = drill.wait_event("took_over", timeout_s=30)
    note(drill, "supervisor killed for memory, supervised again", took_over.t - died_t)

    check_completes(drill)
    assert len(drill.state().attempts) == 1, drill.story()
    # Slurm's word for a job whose batch step lost a process; that of the run's own verbs is another.
    drill.wait_for(lambda: job_state(sandbox, drill.job) == "OUT_OF_MEMORY", 60, "it is not called so")
    shown = json.loads(drill.as_user("status", "--json").stdout)
    assert drill.as_user("wait").returncode == 0 and "completed" in json.dumps(shown), shown


@long_only
@rounds
def test_job_whose_script_the_kernel_kills_for_memory_goes_on_in_the_next_job(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, turn: int
) -> None:
    sandbox = own_sandbox(3, cgroup=True)
    drill = submit(sandbox)(FLAGS, overrides=(SMALL,))
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    shell = next(pid for pid in drill.pids("slurm_script") if parent_of(drill.leader()) == pid)

    died_t = time.time()
    kill_for_memory(drill, shell)
    second = drill.wait_event("attempt_started", 2, timeout_s=90)

    drill.wait_for(lambda: job_state(sandbox, drill.job) == "OUT_OF_MEMORY", 60, "it is not called so")
    assert second.data["job"] != drill.job and second.data["resume_step"] >= 20, drill.story()
    running_again_s(drill, died_t, 2, "batch script killed for memory, training again in the next job")
    check_completes(drill, has_lost_log_end=True)
    assert not drill.state().suspects, drill.story()


@long_only
@pytest.mark.parametrize("handles", [True, False], ids=["that saves on it", "that dies of it"])
def test_term_of_a_step_reaches_the_training_and_the_run_goes_on_without_blame(
    own_sandbox: Callable[..., Sandbox], submit: Submitter, handles: bool
) -> None:
    """Slurm sends it twice, some 10 ms apart (22.05): a rank may have saved and be dying of the second one."""
    drill = submit(own_sandbox(2, cgroup=True))(FLAGS + " --handle-term" * handles)
    drill.wait_step(15)
    drill.sandbox.slurm(["scancel", "--signal=TERM", f"{drill.job}.0"])
    second = drill.wait_event("attempt_started", 2)
    saved = max(drill.losses(rank=0, attempt=1)) if handles else 10   # another rank may have been told a step later
    assert second.data["job"] == drill.job and second.data["resume_step"] == saved, drill.story()
    assert ("stopped on request" in drill.log(1)) == handles, drill.log(1)
    assert handles or drill.wait_event("verdict").data["category"] == "cancelled", drill.story()
    check_completes(drill)
    assert not drill.state().suspects, drill.story()


# --- the kernel's part --------------------------------------------------------------------------------------------


# Takes memory in a group until a process has gone, and gives it back.
EATER = """
import os, sys, time
with open(sys.argv[1] + "/cgroup.procs", "w") as group:
    group.write(str(os.getpid()))
eaten = []
while len(eaten) < 60:
    with open("/proc/" + sys.argv[2] + "/stat") as stat:
        if stat.read().rpartition(")")[2].split()[0] in "ZX":
            break
    eaten.append(bytearray(b"x" * 500_000))
    time.sleep(0.02)
"""


def kill_for_memory(drill: Drill, victim: int) -> None:
    """Let the kernel kill a process of the batch step, since the job is over its memory on the batch host.

    Many small processes take the memory, so that the victim is worth most by far (oom_score_adj in proc(5)).
    """
    group = next((drill.sandbox.dir / "cgroup" / "memory").glob(f"**/job_{drill.job}/step_batch/task_0"))
    Path(f"/proc/{victim}/oom_score_adj").write_text("1000")
    argv = [sys.executable, "-I", "-S", "-c", EATER, str(group), str(victim)]
    eaters = [subprocess.Popen(argv, stderr=subprocess.DEVNULL) for _ in range(10)]
    try:
        drill.wait_for(lambda: not is_alive(victim), 60, "the kernel did not kill it")
    finally:
        for eater in eaters:
            eater.kill()
            eater.wait()


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def job_state(sandbox: Sandbox, job: str) -> str:
    shown = sandbox.slurm(["scontrol", "show", "job", job])
    return shown.partition("JobState=")[2].split()[0]
