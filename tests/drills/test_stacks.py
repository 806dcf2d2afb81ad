"""`safelaunch stacks` on a real Slurm: real processes, real py-spy, a real D state; mostly on jobs of plain srun."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests import admin
from tests.drills.proofs import long_only
from tests.frozen import FuseMount, LoopMount
from tests.localruns import SubmitLocal
from tests.runs import ALICE, Installation, Submitter, comm_of, environ_of
from tests.sandboxes import make_workdir, wait_until
from tests.torchbin import make_torch_bin, needs_torch

# Stands for PyTorch's: what matters is the file's name. Each rank says when it has come to where it stays.
C10D = """\
import time
def all_reduce(arrive):
    arrive()
    while True:
        time.sleep(600)
"""
RANKS = """\
import ctypes, os, pathlib, sys, time
from torch.distributed import distributed_c10d
rank, odd, how = int(os.environ["SLURM_PROCID"]), int(sys.argv[1]), sys.argv[2]
here = pathlib.Path(sys.argv[3])
def arrive():
    (here / f"draft-{rank}").write_text(str(os.getpid()))
    (here / f"draft-{rank}").rename(here / f"arrived-{rank}")
def log_metrics(file):
    while True:
        file.write("x" * 4096)
        file.flush()
        if not (here / f"arrived-{rank}").exists():
            arrive()
def save_extra():
    arrive()
    while True:
        time.sleep(600)
def train_step():
    if rank == odd and how == "skip":
        save_extra()
    if rank == odd and how.startswith("/"):
        log_metrics(open(how, "w"))
    if rank == odd and how == "closed":
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)   # PR_SET_DUMPABLE
    distributed_c10d.all_reduce(arrive)
train_step()
"""
GLOO = """\
import datetime, pathlib, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
rank = dist.get_rank()
def arrive():
    (pathlib.Path(sys.argv[1]) / f"arrived-{rank}").touch()
def evaluate():
    arrive()
    time.sleep(3600)
def train_step(step):
    if step == 2 and rank == 3:
        evaluate()   # which the others skip
    if step == 2:
        arrive()
    dist.all_reduce(torch.ones(4))
for step in range(1000):
    train_step(step)
"""


@dataclass(frozen=True)
class Job:
    """A job of plain srun, whose ranks have come to where they stay."""

    sandbox: Sandbox
    installation: Installation
    folder: Path
    id: str
    nodes: tuple[str, ...]

    def pid(self, rank: int) -> int:
        return int((self.folder / f"arrived-{rank}").read_text())

    def type(self, *words: str, timeout_s: float = 60.0) -> str:
        """stdout of `safelaunch stacks JOB WORDS`."""
        done = self.sandbox.run([*self.installation.argv, "stacks", self.id, *words], user=ALICE, cwd=self.folder,
                                env=self.installation.env, timeout_s=timeout_s)
        assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def look(self, *words: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """The object of `stacks --json`."""
        found: dict[str, Any] = json.loads(self.type("--json", *words, timeout_s=timeout_s))
        return found


Hang = Callable[..., Job]


@pytest.fixture
def needs_py_spy(installation: Installation) -> None:
    if not (installation.python.parent / "py-spy").exists():
        reason = "py-spy is not installed beside the interpreter: pip install 'safelaunch[stacks]'"
        pytest.fail(reason) if os.environ.get("SAFELAUNCH_REQUIRE_SLURM") == "1" else pytest.skip(reason)


@pytest.fixture
def hang(sandbox: Sandbox, installation: Installation, needs_py_spy: None) -> Hang:
    """`hang(odd rank, how, nodes=…, tasks=…)`: all ranks but the odd one wait in a collective."""
    def go(odd: int, how: str, *, nodes: int = 2, tasks: int = 2, options: tuple[str, ...] = (),
           wait: int | None = None, command: str | None = None) -> Job:
        work = make_workdir(sandbox)
        work.chmod(0o755)
        (work / "torch" / "distributed").mkdir(parents=True)
        for name in ("torch/__init__.py", "torch/distributed/__init__.py"):
            (work / name).touch()
        (work / "torch" / "distributed" / "distributed_c10d.py").write_text(C10D)
        (work / "ranks.py").write_text(RANKS)
        shutil.chown(work, ALICE)
        line = command or f"srun /usr/bin/python3 {work}/ranks.py {odd} {how} {work}"
        (work / "job.sh").write_text(f"#!/bin/bash\n#SBATCH -N{nodes} --ntasks-per-node={tasks} -t 30\n{line}\n")
        done = sandbox.run(["sbatch", "--parsable", *options, "job.sh"], user=ALICE, cwd=work)
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip()
        count = nodes * tasks if wait is None else wait
        wait_until(lambda: len(list(work.glob("arrived-*"))) == count, 90, f"not all {count} ranks arrived")
        names = sandbox.slurm(["scontrol", "show", "hostnames", sandbox.slurm(
            ["squeue", "-h", "-j", job, "-o", "%N"]).strip()]).split()
        return Job(sandbox, installation, work, job, tuple(names))
    return go


def odd_ranks(said: dict[str, Any]) -> list[int]:
    return [odd["rank"] for odd in said["verdict"]["odd"]]


def group_of(said: dict[str, Any], ranks: str) -> dict[str, Any]:
    (found,) = [group for group in said["groups"] if group["ranks"] == ranks]
    return dict(found)


def test_rank_that_skips_a_collective_is_named_beside_those_that_wait_for_it(hang: Hang) -> None:
    job = hang(1, "skip")

    said = job.look()

    assert said["headline"] == ("3 ranks: all_reduce ← train_step ← <module> · "
                                "1 rank: save_extra ← train_step ← <module>"), said
    assert (said["verdict"]["kind"], odd_ranks(said)) == ("deadlock", [1])
    assert said["verdict"]["witnesses"] == ["still_stacks", "asleep"]
    assert group_of(said, "0,2-3")["kind"] == "stuck"


def test_stopped_rank_is_named_and_its_stack_is_read_all_the_same(hang: Hang) -> None:
    job = hang(-1, "none")
    os.kill(job.pid(2), signal.SIGSTOP)

    said = job.look()

    assert (said["verdict"]["kind"], odd_ranks(said)) == ("process", [2])
    stopped = group_of(said, "2")
    assert stopped["where"] == "stopped" and stopped["label"].startswith("all_reduce")


def test_rank_in_an_unkillable_sleep_is_named_with_its_call_and_mount_and_all_others_are_dumped(
    hang: Hang, loop_mount: LoopMount
) -> None:
    job = hang(5, f"{loop_mount.path}/log", nodes=4, tasks=8)
    loop_mount.freeze()
    state = Path(f"/proc/{job.pid(5)}/stat")
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "D", 60, "the rank does not sleep")

    said = job.look()
    loop_mount.thaw()

    assert said["ranks"] == 32 and not said["silent"]
    assert (said["verdict"]["kind"], odd_ranks(said)) == ("storage", [5])
    asleep = group_of(said, "5")
    assert asleep["where"] == f"D state in write() on {loop_mount.path}"
    kernel = asleep["representative"]["kernel"]
    assert kernel["wchan"] and kernel["path"] == f"{loop_mount.path}/log" and kernel["fs"] == "ext4"
    assert group_of(said, "0-4,6-31")["kind"] == "stuck"
    assert max(node["took_s"] for node in said["nodes"]) < 7.5, "none waits to its deadline"


def test_rank_that_waits_for_a_stopped_file_server_is_named_with_its_mount(hang: Hang, fuse_mount: FuseMount) -> None:
    job = hang(2, f"{fuse_mount.path}/log")
    fuse_mount.freeze()

    said = job.look()
    fuse_mount.thaw()

    assert said["ranks"] == 4 and not said["silent"]
    assert (said["verdict"]["kind"], odd_ranks(said)) == ("storage", [2]), said["verdict"]
    assert f"on {fuse_mount.path}" in said["verdict"]["summary"]


def test_node_whose_slurmd_is_frozen_holds_nobody_and_is_listed(hang: Hang) -> None:
    job = hang(-1, "none", nodes=3)
    admin.freeze_slurmd(job.sandbox, job.nodes[1])

    said = job.look("--deadline", "8")

    assert [one["node"] for one in said["silent"]] == [job.nodes[1]]
    assert said["ranks"] == 4 and said["verdict"]["suspects"] == [job.nodes[1]], said
    assert max(node["took_s"] for node in said["nodes"]) < 7.5, "none waits to its deadline"
    assert "silent_nodes" in said["verdict"]["witnesses"]


def test_helper_that_is_killed_on_one_node_takes_no_other_nodes_dump_with_it(hang: Hang) -> None:
    job = hang(-1, "none", nodes=3)

    said = look_while_killing(job)
    for _ in range(2):   # a helper is there for four seconds: on busy cores it may be done before it is seen
        said = said if said["silent"] else look_while_killing(job)

    assert [node["ranks"] for node in said["nodes"]] == ["0-1", "2-3"]
    assert [one["node"] for one in said["silent"]] == [job.nodes[2]]


def look_while_killing(job: Job) -> dict[str, Any]:
    """What `stacks --json` says while the helpers on the last node are killed at sight."""
    watcher = job.sandbox.start([*job.installation.argv, "stacks", job.id, "--json", "--samples", "20"], user=ALICE,
                                cwd=job.folder, env=job.installation.env)
    wait_until(lambda: kill_all(helpers(job.nodes[2])) > 0, 60, "no helper came to the node")
    wait_until(lambda: kill_all(helpers(job.nodes[2])) == 0, 60, "a helper did not die")
    out, _ = watcher.communicate(timeout=60)
    said: dict[str, Any] = json.loads(out)
    return said


def kill_all(pids: Iterable[int]) -> int:
    """How many there were; the children of a helper come and go, so one turn does not meet all."""
    count = 0
    for pid in pids:
        count += 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return count


def helpers(node: str) -> Iterator[int]:
    """As each is found; the environments of all processes of a machine take a while to read."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            is_helper = b"-S" in words and any(b"SAFELAUNCH_PART_" in word for word in words)
            if not is_helper or b"srun" in words[0] or b"bash" in words:
                continue
            if f"SLURMD_NODENAME={node}".encode() in (path / "environ").read_bytes().split(b"\0"):
                yield int(path.name)


def test_job_in_limbo_has_no_rank_left_and_says_so(hang: Hang) -> None:
    job = hang(-1, "none")
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    mine = f"SLURM_JOB_ID={job.id}".encode()
    step = [pid for pid in pids if comm_of(pid) == "srun" and mine in environ_of(pid).split(b"\0")]
    assert step
    for pid in step:
        os.kill(pid, signal.SIGSTOP)   # it will not notice, and Slurm's job stays
    for rank in range(4):
        os.kill(job.pid(rank), signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{job.pid(rank)}").exists() for rank in range(4)), 60, "ranks were left")

    said = job.look()

    assert (said["ranks"], said["verdict"]["kind"]) == (0, "process"), said
    assert said["verdict"]["summary"] == "no rank of the job is alive on the nodes that answered"


def test_rank_that_is_closed_to_ptrace_is_shown_with_what_the_kernel_says_and_a_hint(hang: Hang) -> None:
    job = hang(3, "closed")

    said = job.look()
    text = job.type()

    assert said["ranks"] == 4 and group_of(said, "0-2")["kind"] == "stuck"
    closed = [group for group in said["groups"] if group["kind"] == "unreadable"]
    assert len(closed) == 1 and "ptrace refused" in closed[0]["representative"]["why"], said
    assert closed[0]["representative"]["kernel"]["state"] == "S"
    assert "sudo py-spy dump" in text


def test_processes_of_another_job_on_the_same_nodes_are_not_looked_at(hang: Hang) -> None:
    first = hang(-1, "none", options=("--oversubscribe",))
    second = hang(-1, "none", options=("--oversubscribe", f"--nodelist={','.join(first.nodes)}"))

    said = second.look()

    pids = {group["representative"]["pid"] for group in said["groups"]}
    assert said["ranks"] == 4 and pids <= {second.pid(rank) for rank in range(4)}


def test_helpers_start_beside_a_job_that_holds_all_gpus(hang: Hang) -> None:
    job = hang(1, "skip", options=("--gpus-per-node=8", "--exclusive"))

    said = job.look()

    assert said["ranks"] == 4 and not said["silent"]


def test_raw_reports_are_kept_for_each_node_and_each_rank(hang: Hang) -> None:
    job = hang(1, "skip")

    job.type("--raw", "dumps")

    names = {path.name for path in (job.folder / "dumps").iterdir()}
    assert {f"{node}.json" for node in job.nodes} <= names and len(names) == 6
    (one,) = (job.folder / "dumps").glob("rank-00001-*.txt")
    assert "save_extra (ranks.py:" in one.read_text()


def test_stacks_of_a_run_are_those_of_its_last_attempt_only(
    sandbox: Sandbox, submit: Submitter, needs_py_spy: None
) -> None:
    drill = submit(sandbox)("--steps 100000 --step-time 0.05 --save-every 1000000")
    drill.wait_step(5)

    done = drill.as_user("stacks", str(drill.run_dir), "--json")

    said = json.loads(done.stdout)
    assert said["ranks"] == 4 and said["verdict"]["kind"] in ("moving", "unknown"), done.stdout
    assert "asleep" not in said["verdict"]["witnesses"], "it sleeps at one line, but for a moment each time"
    assert {rank for group in said["groups"] for rank in [group["representative"]["pid"]]} <= set(drill.ranks())


def test_stacks_of_a_local_run_need_no_slurm(submit_local: SubmitLocal) -> None:
    run = submit_local("--steps 100000 --step-time 0.05 --save-every 1000000", nodes=2, tasks=2)
    run.wait_step(5)

    done = run.type("stacks", "--json")

    said = json.loads(done.stdout)
    assert [(node["node"], node["ranks"]) for node in said["nodes"]] == [("local0", "0-1"), ("local1", "2-3")]
    assert {group["representative"]["pid"] for group in said["groups"]} <= set(run.ranks())


def test_run_that_has_ended_is_refused_with_what_to_do(submit_local: SubmitLocal) -> None:
    run = submit_local("--steps 3 --step-time 0.01")
    run.wait_end()

    done = run.type("stacks")

    assert done.returncode == 2 and "the run has completed" in done.stderr and "safelaunch why" in done.stderr


@long_only   # in the short form by test_hangs, whose looks are the same
@needs_torch
@pytest.mark.torch
def test_deadlock_of_a_real_torchrun_job_over_gloo_is_explained(
    sandbox: Sandbox, installation: Installation, hang: Hang
) -> None:
    work = make_workdir(sandbox)
    (work / "train.py").write_text(GLOO)
    bin_dir = make_torch_bin(work / "bin", installation)
    arrived = work / "arrived"
    arrived.mkdir()
    shutil.chown(arrived, ALICE)
    torchrun = (f"export PATH={bin_dir}:$PATH GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1\n"
                "srun bash -c 'torchrun --nnodes 2 --node_rank $SLURM_NODEID --nproc_per_node 2 "
                f"--master_addr 127.0.0.1 --master_port {20000 + os.getpid() % 9000} {work}/train.py {arrived}'")
    job = hang(-1, "none", tasks=1, command=torchrun, wait=0)
    wait_until(lambda: len(list(arrived.iterdir())) == 4, 90, "not all ranks arrived")

    said = job.look()

    assert said["headline"] == ("3 ranks: all_reduce ← train_step ← <module> · "
                                "1 rank: evaluate ← train_step ← <module>"), said
    assert (said["verdict"]["kind"], odd_ranks(said)) == ("deadlock", [3])
