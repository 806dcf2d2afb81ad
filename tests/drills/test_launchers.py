"""The launchers with their real packages, on the local cluster: the long form, skipped where a package is missing.

MPI (mpi4py with MPICH) is the exception: it needs a real Slurm, and its users must be able to read the packages.

    SAFELAUNCH_LONG=1 SAFELAUNCH_LAUNCHERS=/path/of/a/venv pytest tests/drills/test_launchers.py

SAFELAUNCH_LAUNCHERS is a virtual environment with the packages; by default that of the tests.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import long_only
from tests.localruns import LocalRun, SubmitLocal
from tests.runs import Submitter
from tests.sandboxes import make_workdir
from tests.trainers.stepping import losses_until

BIN = Path(os.environ.get("SAFELAUNCH_LAUNCHERS", sys.prefix)) / "bin"
TWO_BY_TWO = {"accelerate": "accelerate", "deepspeed": "deepspeed", "ft_launcher": "ft_launcher"}
each_starter = pytest.mark.parametrize("launcher", TWO_BY_TWO)

NO_RESUME = ("resume.dir=", "resume.args=", "resume.format=auto")
JAX = """\
import os, signal, sys, time
import jax
from jax.experimental import multihost_utils
jax.distributed.initialize()
print(f"process {jax.process_index()} of {jax.process_count()}", flush=True)
for step in range(1, 2000):
    time.sleep(0.05)
    print(f"step {step} loss {1 / step} rank {jax.process_index()}", flush=True)
    if os.environ["SAFELAUNCH_ATTEMPT"] == "1" and step == 5 and jax.process_index() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if multihost_utils.reached_preemption_sync_point(step):
        print("saved", flush=True)
        sys.exit(0)
"""
RAY = """\
import os, signal
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init()
@ray.remote
def where():
    return ray.get_runtime_context().get_node_id()
nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
on = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
here = [where.options(scheduling_strategy=one).remote() for one in on]
print("nodes", len(set(ray.get(here))), flush=True)
for step in range(1, 11):
    print(f"step {step} loss {1 / step} rank 0", flush=True)
    if os.environ["SAFELAUNCH_ATTEMPT"] == "1" and step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
"""
MPI = """\
import os, signal
from mpi4py import MPI
world = MPI.COMM_WORLD
print("ranks", world.size, "sum", world.allreduce(world.rank), flush=True)
for step in range(1, 11):
    world.Barrier()
    print(f"step {step} loss {1 / step} rank {world.rank}", flush=True)
    if os.environ["SAFELAUNCH_ATTEMPT"] == "1" and step == 5 and world.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def needs(program: str) -> None:
    if not (BIN / program).exists():
        pytest.skip(f"there is no {program} in {BIN}; see the top of this file")


def how(run: LocalRun) -> tuple[str, int]:
    ended = run.wait_end()
    return ended.how, ended.exit_code


def words_for(launcher: str) -> tuple[str, ...]:
    return (f"launch.with={launcher}", f"setup=export PATH={BIN}:$PATH", "env.OMP_NUM_THREADS=1")


@long_only
@each_starter
def test_rank_that_is_killed_is_resumed_with_equal_losses(submit_local: SubmitLocal, launcher: str) -> None:
    needs(TWO_BY_TWO[launcher])
    run = submit_local("--steps 40 --step-time 0.05 --save-every 10 --die-at 25 --die-rank 3 --lockstep sync",
                       *words_for(launcher), "launch.nproc_per_node=2", nodes=2)

    assert how(run) == ("completed", 0), run.story()
    assert [attempt.ended for attempt in run.state().attempts] == ["failed", "completed"], run.story()
    assert run.state().attempts[1].resume_step == 20
    assert run.losses() == losses_until(40)
    prefixes = set(re.findall(r"(?m)^\[(local\d:\d)\]: ?step 40 loss", run.log(2)))
    assert prefixes == {"local0:0", "local0:1", "local1:0", "local1:1"}, run.log(2)


@long_only
@each_starter
def test_kill_switch_reaches_all_ranks_and_no_launcher(submit_local: SubmitLocal, launcher: str) -> None:
    needs(TWO_BY_TWO[launcher])
    run = submit_local("--steps 100000 --step-time 0.05 --save-every 1000000 --handle-usr2", *words_for(launcher),
                       "launch.nproc_per_node=2", nodes=2)
    run.wait_ranks(4)

    run.type("stop", str(run.run_dir))

    assert how(run) == ("stopped", 12), run.story()
    assert run.stopped() == 4, run.log(1)
    assert run.events("attempt_ended")[0].data["exit_code"] == 0, "the launchers ended by themselves"


@long_only
def test_jax_is_resumed_and_ends_by_its_own_notice(submit_local: SubmitLocal, tmp_path: Path) -> None:
    needs("python3")
    (tmp_path / "jaxed.py").write_text(JAX)
    if not list(BIN.parent.glob("lib/python*/site-packages/jax")):
        pytest.skip(f"there is no jax in {BIN.parent}; see the top of this file")
    run = submit_local("", *words_for("jax"), "command=python3 -u jaxed.py", "env.JAX_PLATFORMS=cpu", *NO_RESUME,
                       nodes=2)
    run.wait_step(3, attempt=2)

    run.type("stop", str(run.run_dir))

    assert how(run) == ("stopped", 12), run.story()
    assert "process 1 of 2" in run.log(2) and run.log(2).count("]:saved") == 2, run.log(2)


@long_only
def test_rays_driver_is_restarted_and_nothing_of_ray_is_left(submit_local: SubmitLocal, tmp_path: Path) -> None:
    needs("ray")
    (tmp_path / "rayed.py").write_text(RAY)
    run = submit_local("", *words_for("ray"), "command=python3 -u rayed.py", *NO_RESUME, nodes=2)

    assert how(run) == ("completed", 0), run.story()
    assert [attempt.ended for attempt in run.state().attempts] == ["failed", "completed"], run.story()
    assert "[local0:0]:nodes 2" in run.log(2), run.log(2)
    assert not run.pids()


@long_only
def test_mpi_ranks_under_srun_are_guarded_and_restarted(sandbox: Sandbox, submit: Submitter) -> None:
    if not list(BIN.parent.glob("lib/python*/site-packages/mpi4py")):
        pytest.skip(f"there is no mpi4py in {BIN.parent}; see the top of this file")
    work = make_workdir(sandbox)
    (work / "mpied.py").write_text(MPI)
    drill = submit(sandbox)(tasks=2, command="python3 -u mpied.py", folder=work,
                            extra=f"setup: export PATH={BIN}:$PATH\nsrun: {{extra: [--mpi=pmi2]}}\n",
                            overrides=("launch.with=mpi",))

    state = drill.wait_end(120)

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("completed", 0), drill.story()
    assert [attempt.ended for attempt in state.attempts] == ["failed", "completed"], drill.story()
    assert drill.log(2).count("ranks 4 sum 6") == 4, drill.log(2)
    assert f"[{state.attempts[1].nodes[1]}:3]:step 10 loss" in drill.log(2), drill.log(2)
