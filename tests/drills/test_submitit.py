"""submitit's plugin on a real Slurm: a function outlives its node, and an array is a run for each function."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from safelaunch.run.io import runfolder
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import long_only
from tests.runs import ALICE, Drill, Installation
from tests.sandboxes import make_workdir

PROGRAM = """\
import os, time
import submitit

def count(n):
    env = submitit.JobEnvironment()
    print("attempt", os.environ["SAFELAUNCH_ATTEMPT"], "on", os.environ["SLURMD_NODENAME"], flush=True)
    while os.environ["SAFELAUNCH_ATTEMPT"] == "1" and n < 0:
        time.sleep(0.1)
    return n * 10 + env.num_tasks, list(env.hostnames), os.environ["SAFELAUNCH_ATTEMPT"]

executor = submitit.AutoExecutor("jobs", cluster="safelaunch")
executor.update_parameters(timeout_min=30, nodes=NODES, safelaunch_spare_nodes=SPARES)
jobs = executor.map_array(count, VALUES)
print([job.results() for job in jobs], [job.state for job in jobs])
"""

HANGS = """\
import os, socket, time
import submitit

def square(n):
    for step in (1, 2, 3):
        print("step", step, "loss 1.0", flush=True)
        time.sleep(0.2)
    ends = socket.socketpair()
    if n in HANGING and os.environ["SAFELAUNCH_ATTEMPT"] == "1":
        ends[0].recv(1)
    return n * n

executor = submitit.AutoExecutor("jobs", cluster="safelaunch")
executor.update_parameters(timeout_min=30, safelaunch_standby=False, safelaunch_hang={"no_progress": "5s"},
                           safelaunch_restart={"backoff": "1s"})
jobs = executor.map_array(square, range(COUNT))
print([job.result() for job in jobs] == [n * n for n in range(COUNT)], {job.state for job in jobs})
restarts = [job.run.status().restarts for job in jobs]
print([(n, times, jobs[n].run.why().category) for n, times in enumerate(restarts) if times])
"""


def lay_out(sandbox: Sandbox, text: str = PROGRAM, **values: object) -> Path:
    """A folder with the program."""
    folder = make_workdir(sandbox)
    for name, value in values.items():
        text = text.replace(name, repr(value))
    (folder / "program.py").write_text(text)
    return folder


def words(installation: Installation, folder: Path) -> tuple[list[str], dict[str, str]]:
    return [str(installation.python), "program.py"], {**installation.env, "XDG_STATE_HOME": f"{folder}/.state"}


@long_only   # below two of an array hang, and all return
def test_an_array_of_functions_returns_their_results(sandbox: Sandbox, installation: Installation) -> None:
    folder = lay_out(sandbox, NODES=1, SPARES=0, VALUES=[1, 2, 3])
    argv, env = words(installation, folder)
    done = sandbox.run(argv, user=ALICE, cwd=folder, env=env, timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("'1')") == 3 and "(11, " in done.stdout and "(31, " in done.stdout
    assert done.stdout.rstrip().endswith("['COMPLETED', 'COMPLETED', 'COMPLETED']")


@pytest.mark.parametrize(("count", "hanging"), [
    (3, (0, 2)), pytest.param(20, (3, 11), marks=long_only)], ids=["three", "twenty"])
def test_two_functions_of_an_array_hang_and_all_return_their_results(
    sandbox: Sandbox, installation: Installation, count: int, hanging: tuple[int, int]
) -> None:
    folder = lay_out(sandbox, HANGS, COUNT=count, HANGING=hanging)
    argv, env = words(installation, folder)
    done = sandbox.run(argv, user=ALICE, cwd=folder, env=env, timeout_s=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == ["True {'COMPLETED'}", str([(n, 1, "hang") for n in hanging])]


def test_a_function_whose_node_dies_returns_its_result_in_the_next_attempt(
    sandbox: Sandbox, installation: Installation
) -> None:
    folder = lay_out(sandbox, NODES=2, SPARES=1, VALUES=[-1])
    argv, env = words(installation, folder)
    program = sandbox.start(argv, user=ALICE, cwd=folder, env=env)
    try:
        end_s = time.monotonic() + 60
        while not (logs := [log for log in folder.glob("jobs/runs/*/attempts/0001/main.log")
                            if log.read_text().count("attempt 1 on") == 2]):
            assert time.monotonic() < end_s and program.poll() is None, "the function did not start"
            time.sleep(0.05)
        run_dir = logs[0].parents[2]
        drill = Drill(sandbox, installation, folder, run_dir, "", env=env)
        worker = drill.state().attempts[0].nodes[1]
        sandbox.crash(worker)
        state = drill.wait_end()
        said, _ = program.communicate(timeout=60)
    finally:
        program.kill()
    assert state.ended and state.ended.how == "completed", drill.story()
    nodes = list(runfolder.load(run_dir).state().attempts[-1].nodes)
    assert worker not in nodes and f"{nodes!r}" in str(said)
