"""What lies around attempts: ranks left behind, core files, processes that no KILL ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safelaunch.run.io import runfolder
from safelaunch.sandbox.cluster import Sandbox
from tests.frozen import LoopMount
from tests.localruns import SubmitLocal
from tests.runs import Submitter
from tests.sandboxes import make_workdir
from tests.trainers.stepping import losses_until

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
Left = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def left() -> Iterator[Left]:
    """`left(mark)`: a rank that nobody has ended, ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def go(mark: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "SAFELAUNCH_MARK": mark, "SLURMD_NODENAME": "local0", "RANK": "0"}
        started.append(subprocess.Popen([sys.executable, "-c", SLEEP], env=env, stdout=subprocess.PIPE))
        assert started[-1].stdout is not None and started[-1].stdout.readline()
        return started[-1]

    yield go
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def read_system(run_dir: Path, name: str, attempt: int = 1) -> dict[str, Any]:
    """A file of an attempt's system/."""
    found: dict[str, Any] = json.loads((run_dir / "attempts" / f"{attempt:04d}" / "system" / name).read_text())
    return found


def test_rank_that_an_earlier_attempt_left_behind_is_ended_and_told(submit_local: SubmitLocal, left: Left) -> None:
    run = submit_local("--steps 120 --step-time 0.05 --save-every 5 --die-at 20",
                       "setup=until [[ -e go ]]; do sleep 0.05; done")
    plan, job = runfolder.load(run.run_dir).plan, run.state().job
    assert job is not None
    rank = left(f"{plan.run_id}.{job.id}.1")   # no descendant of its guard: it has not been seen to go
    of_another_run = left(f"another.{job.id}.1")
    (run.folder / "go").touch()

    run.wait_for(lambda: run.events("leftovers"), 60, "no leftover was told")
    assert run.wait_end().how == "completed", run.story()

    assert rank.wait(60) == -signal.SIGTERM and of_another_run.poll() is None
    told = [json.loads(path.read_text()) for path in run.run_dir.glob("attempts/*/system/leftovers*.json")]
    found = [row for one in told for row in one["left"]]   # after the first attempt, or at the start of the second
    assert {(row["node"], row["pid"], row["whose"], row["ended"]) for row in found} == {
        ("local0", rank.pid, "ours", True)}
    assert f"pid {rank.pid} of an earlier attempt of this run" in (run.run_dir / "job.out").read_text()
    assert run.losses() == losses_until(120)


def test_core_file_of_a_crashed_rank_is_named_with_its_stack(submit_local: SubmitLocal) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    if pattern.startswith(("|", "/")):
        pytest.skip(f"cores of this machine go elsewhere: {pattern.strip()}")
    run = submit_local("--steps 40 --step-time 0.05 --save-every 5 --die-at 20 --die-signal SEGV",
                       "setup=ulimit -c unlimited")
    assert run.wait_end().how == "completed", run.story()

    (core,) = read_system(run.run_dir, "cores.json")["cores"]
    assert core["signal"] == signal.SIGSEGV and Path(core["path"]).parent == run.folder, core
    assert f"core file on local0: {core['path']}" in (run.run_dir / "job.out").read_text()
    assert core["path"] in run.type("why", "--attempt", "1").stdout
    if core["by"] == "pystack":
        assert any(frame.startswith("fail_if_due (") for frame in core["backtrace"]), core


def test_run_whose_attempt_fails_without_a_core_says_nothing_of_cores(submit_local: SubmitLocal) -> None:
    run = submit_local("--steps 40 --step-time 0.02 --save-every 5 --die-at 20 --exit-code 3")
    assert run.wait_end().how == "completed", run.story()
    assert not run.events("cores") and not (run.run_dir / "attempts" / "0001" / "system").exists()


# Rank 1 writes on a filesystem that will freeze; rank 0 fails once it is told to. The second attempt goes well.
TWO_RANKS = """\
import os, pathlib, sys, time
rank, attempt, here = int(os.environ["SLURM_PROCID"]), os.environ["SAFELAUNCH_ATTEMPT"], pathlib.Path(sys.argv[1])
log = open(sys.argv[2], "a") if rank == 1 and attempt == "1" else None
for step in range(1, 10**9 if attempt == "1" else 40):
    if log is not None:
        log.write("x" * 4096)
        log.flush()
    if rank == 0:
        print(f"step {step} loss 1.0 rank 0", flush=True)
        if attempt == "1" and (here / "fail").exists():
            sys.exit(3)
    time.sleep(0.05)
"""


def test_rank_that_no_kill_ends_costs_its_node_and_becomes_a_ticket_for_the_administrators(
    sandbox: Sandbox, submit: Submitter, loop_mount: LoopMount
) -> None:
    work = make_workdir(sandbox)
    (work / "two.py").write_text(TWO_RANKS)
    drill = submit(sandbox)(command=f"python3 -u {work}/two.py {work} {loop_mount.path}/log", nodes=2, tasks=1,
                            folder=work, extra="spare_nodes: 1\n")
    drill.wait_step(20)
    node = drill.events("attempt_started")[0].data["nodes"][1]
    loop_mount.freeze()
    drill.wait_for(lambda: any(_state(pid) == "D" for pid in drill.pids("two.py")), 60, "no rank sleeps")
    (work / "fail").touch()

    lost = drill.wait_event("node_lost", timeout_s=100)
    drill.wait_event("attempt_started", count=2, timeout_s=60)
    ticket = drill.run_dir / "attempts" / "0001" / "system" / f"ticket-{node}.txt"
    drill.wait_for(ticket.exists, 60, "no ticket")
    loop_mount.thaw()
    state = drill.wait_end(120)

    assert lost.data["node"] == node and "end" in lost.data["why"], lost.data
    assert node not in drill.events("attempt_started")[1].data["nodes"]
    assert [event.data["node"] for event in drill.events("node_suspected")] == [node], drill.story()
    text = ticket.read_text()
    assert text.startswith(f"Subject: node {node}: 1 process that no SIGKILL ends"), text
    assert f"mount {loop_mount.path} (ext4)" in text and "state D" in text and "restart the node" in text
    assert state.ended and state.ended.how == "completed", drill.story()
    assert f"ticket-{node}.txt" in drill.as_user("why", str(drill.run_dir), "--attempt", "1").stdout


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""
