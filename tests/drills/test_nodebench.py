"""Nodes measured on a real Slurm: one of four is slowed down by the kernel, to a tenth of a core or by 2.5 %."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch.nodehealth.slow.fleet import LOOK
from safelaunch.sandbox.cluster import Sandbox, daemons_on
from tests.drills.proofs import IS_LONG
from tests.runs import ALICE, Installation
from tests.sandboxes import make_workdir

CPU = Path("/sys/fs/cgroup/cpu")
SLOW = "n2"
PERIOD_US, QUOTA_US = 50_000, 5_000
WEIGHT = 1024      # cpu.shares of a control group, unless it is told another
alone = pytest.mark.skipif(not IS_LONG, reason="other tests on the same cores make other nodes slow, too; run it alone "
                                               "with SAFELAUNCH_LONG=1")


def dissolve(group: Path) -> None:
    """Give its processes back to the root of the tree, and remove it."""
    for text in (group / "cgroup.procs").read_text().split():
        (CPU / "cgroup.procs").write_text(text)
    group.rmdir()


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
        dissolve(group)


@pytest.fixture(params=[0.025, 0.0], ids=["one 2.5 % slower", "all alike"])
def fair(sandbox: Sandbox, request: pytest.FixtureRequest) -> Iterator[float]:
    """Nodes that share one core, each by a weight of its own: all are as fast as the others, however fast that core is
    just now. On the slow one a burner takes its part of the node's weight. How much that is.
    """
    if not (CPU / "cgroup.procs").exists():
        pytest.skip("needs the cpu controller of cgroup v1")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs a core that nothing else uses")
    share: float = request.param
    groups: list[Path] = []
    burner: subprocess.Popen[bytes] | None = None
    try:
        os.sched_setaffinity(0, set(cores[:-1]))   # and srun, and all that the test starts
        for node in sandbox.nodes:
            groups.insert(0, CPU / f"safelaunch-test-{sandbox.dir.name}-{node}")
            groups[0].mkdir()
            for pid in daemons_on(sandbox.machine(node)):
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    os.sched_setaffinity(int(thread.name), {cores[-1]})
                (groups[0] / "cgroup.procs").write_text(str(pid))
            if node == SLOW and share:
                groups.insert(0, groups[0] / "burner")
                groups[0].mkdir()
                (groups[0] / "cpu.shares").write_text(str(round(WEIGHT * share / (1 - share))))
                burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                os.sched_setaffinity(burner.pid, {cores[-1]})
                (groups[0] / "cgroup.procs").write_text(str(burner.pid))
        yield share
    finally:
        if burner is not None:
            burner.kill()
            burner.wait()
        for group in groups:
            dissolve(group)
        os.sched_setaffinity(0, set(cores))


@alone
def test_of_four_nodes_the_one_that_is_slower_by_2_5_percent_stands_out_and_of_four_alike_none(
    sandbox: Sandbox, installation: Installation, fair: float
) -> None:
    """Whether it is also called slow depends on the noise of this machine; docs/slow.md has how often it was."""
    work = make_workdir(sandbox)
    python = work / "python"   # no PyTorch: what it computes on a shared core varies by 4 % with the caches
    python.write_text("""#!/bin/sh\necho '{"torch": null}'\n""")
    python.chmod(0o755)
    skip = [word for name in ("memory", "disk_write", "disk_read", "bus") for word in ("--skip", name)]
    done = sandbox.run([*installation.argv, "nodes", "bench", "n[0-3]", "--json", *skip, "--repeats", "10", "--python",
                        str(python), "--", "--partition=main"], user=ALICE, cwd=work, env=installation.env,
                       timeout_s=400)
    told = {row["node"]: row for row in json.loads(done.stdout)["nodes"]}
    odd = {node for node, row in told.items() if row["scores"][0]["slower_by"] >= 0.0125 and row["scores"][0]["z"] >= 2}
    assert odd == ({SLOW} if fair else set()), done.stdout
    assert {row["verdict"] for node, row in told.items() if node not in odd} == {"good"}, done.stdout


@alone
def test_of_four_nodes_the_one_with_a_tenth_of_a_core_is_called_slow_and_no_other(
    sandbox: Sandbox, installation: Installation, slowed: str
) -> None:
    work = make_workdir(sandbox)
    done = sandbox.run([*installation.argv, "nodes", "bench", "n[0-3]", "--json", "--skip", "matmul", "--skip",
                        "gpu_memory", "--skip", "bus", "--repeats", "1", "--tolerance", "40", "--", "--partition=main"],
                       user=ALICE, cwd=work, env=installation.env, timeout_s=300)
    told = json.loads(done.stdout)
    verdicts = {row["node"]: row["verdict"] for row in told["nodes"]}
    assert verdicts == {**dict.fromkeys(sandbox.nodes, "good"), slowed: "slow"}, told
    assert (done.returncode, told["ok"], told["rounds"]) == (13, False, LOOK)


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
