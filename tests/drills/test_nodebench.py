"""Nodes measured on a real Slurm: one of four is slowed down by the kernel, to a tenth of a core, or by 2.5 %."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox, daemons_on
from tests.drills.proofs import IS_LONG
from tests.runs import ALICE, Installation
from tests.sandboxes import make_workdir

CPU = Path("/sys/fs/cgroup/cpu")
SLOW = "n2"
PERIOD_US, QUOTA_US = 50_000, 5_000
# Takes a share of one core before anything else, in bursts that are short beside a measurement.
BURNER = """\
import os, sys, time
core, share, every_s = int(sys.argv[1]), float(sys.argv[2]), 0.01
os.sched_setaffinity(0, {core})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
at = time.monotonic()
while True:
    while time.monotonic() < at + every_s * share:
        pass
    at += every_s
    time.sleep(max(0.0, at - time.monotonic()))
"""


@pytest.fixture
def slowed(sandbox: Sandbox) -> Iterator[str]:
    """A node whose steps share a tenth of a core: slurmd hands its control group down to them."""
    if not (CPU / "cgroup.procs").exists():
        pytest.skip("needs the cpu controller of cgroup v1")
    group = CPU / f"safelaunch-test-{sandbox.dir.name}"
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
    try:
        for pid in daemons_on(sandbox.machine(SLOW)):
            (group / "cgroup.procs").write_text(str(pid))
        yield SLOW
    finally:
        for text in (group / "cgroup.procs").read_text().split():
            (CPU / "cgroup.procs").write_text(text)
        group.rmdir()


def own_cores() -> list[int]:
    """One of each pair of hardware threads that share a core."""
    first = {(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).read_text().replace(
        "-", ",").split(",")[0] for cpu in os.sched_getaffinity(0)}
    return sorted(map(int, first))


@pytest.fixture
def burdened(sandbox: Sandbox) -> Iterator[str]:
    """A node that has 97.5 % of its one core; the others have all of theirs."""
    cores = own_cores()[1:len(sandbox.nodes) + 1]
    if len(cores) < len(sandbox.nodes):
        pytest.skip("needs a core of its own for each of four nodes, and one for all else")
    for node, core in zip(sandbox.nodes, cores, strict=True):
        for pid in daemons_on(sandbox.machine(node)):
            for task in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(task), {core})   # its steps inherit that
    burner = subprocess.Popen([sys.executable, "-c", BURNER, str(cores[sandbox.nodes.index(SLOW)]), "0.025"])
    try:
        yield SLOW
    finally:
        burner.kill()
        burner.wait()


@pytest.mark.skipif(not IS_LONG, reason="no other process may run on these cores; run it alone with SAFELAUNCH_LONG=1")
def test_of_four_nodes_with_a_core_each_the_one_that_is_slower_by_two_and_a_half_percent_is_found_in_one_round(
    sandbox: Sandbox, installation: Installation, burdened: str
) -> None:
    work = make_workdir(sandbox)
    skip = [word for name in ("memory", "gpu_memory", "bus") for word in ("--skip", name)]
    done = sandbox.run([*installation.argv, "nodes", "bench", "n[0-3]", "--json", *skip, "--", "--partition=main"],
                       user=ALICE, cwd=work, env=installation.env, timeout_s=300)
    told = json.loads(done.stdout)
    print(json.dumps(told))
    verdicts = {row["node"]: row["verdict"] for row in told["nodes"]}
    assert verdicts == {**dict.fromkeys(sandbox.nodes, "good"), burdened: "slow"}, told


@pytest.mark.skipif(not IS_LONG, reason="other tests on the same cores make other nodes slow, too; run it alone with "
                                        "SAFELAUNCH_LONG=1")
def test_of_four_nodes_the_one_with_a_tenth_of_a_core_is_called_slow_and_no_other(
    sandbox: Sandbox, installation: Installation, slowed: str
) -> None:
    work = make_workdir(sandbox)
    done = sandbox.run([*installation.argv, "nodes", "bench", "n[0-3]", "--json", "--skip", "matmul", "--skip",
                        "gpu_memory", "--skip", "bus", "--repeats", "1", "--tolerance", "40", "--", "--partition=main"],
                       user=ALICE, cwd=work, env=installation.env, timeout_s=120)
    told = json.loads(done.stdout)
    verdicts = {row["node"]: row["verdict"] for row in told["nodes"]}
    assert verdicts == {**dict.fromkeys(sandbox.nodes, "good"), slowed: "slow"}, told
    assert (done.returncode, told["ok"], told["rounds"]) == (13, False, 5)


def test_the_node_whose_all_reduce_stands_still_is_named_in_two_rounds_of_pairs(
    sandbox: Sandbox, installation: Installation
) -> None:
    work = make_workdir(sandbox)
    python = work / "python"   # stands for PyTorch, whose import alone takes seconds; tests/node/bench has the real one
    python.write_text(f"""#!/bin/bash
[[ $SLURMD_NODENAME == {SLOW} ]] && kill -STOP $$
echo '{{"torch": "1", "backend": "gloo", "samples": [2.0]}}'
""")
    python.chmod(0o755)
    skip = [word for name in ("matmul", "gpu_memory", "memory") for word in ("--skip", name)]
    done = sandbox.run([*installation.argv, "nodes", "bench", "n[0-3]", "--json", *skip, "--python", str(python),
                        "--deadline", "6", "--", "--partition=main"],
                       user=ALICE, cwd=work, env=installation.env, timeout_s=120)
    told = json.loads(done.stdout)
    verdicts = {row["node"]: row["verdict"] for row in told["nodes"]}
    assert (done.returncode, verdicts) == (13, {**dict.fromkeys(sandbox.nodes, "good"), SLOW: "slow"}), told
    assert [(pair["round"], pair["gb_s"]) for pair in told["pairs"] if SLOW in pair["nodes"]] == [(1, None), (2, None)]
    assert not sandbox.slurm(["squeue", "-h"]).strip()
