"""Nodes measured on a real Slurm: one of four is slowed down by the kernel, to a tenth of a core."""

from __future__ import annotations

import json
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
