"""`sandbox up --cgroup`: the kernel holds jobs to what they were given, and nothing of the groups is left behind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.errors import SandboxError
from safelaunch.sandbox import cgroups, registry
from safelaunch.sandbox.cluster import Sandbox
from tests.sandboxes import make_workdir, wait_until

# How a machine with systemd, this kind of virtual machine, and one with cgroup v2 alone say it.
TOGETHER = """\
33 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:14 - cgroup cgroup rw,cpu,cpuacct
34 24 0:29 / /sys/fs/cgroup/memory rw,nosuid shared:15 - cgroup cgroup rw,memory
35 24 0:30 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
"""
OF_A_SANDBOX = "90 24 0:29 /safelaunch-a-1-2 /tmp/a/cgroup/memory rw - cgroup cgroup rw,memory\n"
UNIFIED = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
EAT = "python3 -c 'eaten = [bytearray(b\"x\" * 1000000) for _ in range(400)]; print(\"had it all\")'"


@pytest.mark.parametrize(("text", "found"), [
    (TOGETHER, {"cpuacct": "/sys/fs/cgroup/cpu,cpuacct", "memory": "/sys/fs/cgroup/memory"}),
    (OF_A_SANDBOX + TOGETHER, {"cpuacct": "/sys/fs/cgroup/cpu,cpuacct", "memory": "/sys/fs/cgroup/memory"}),
    (UNIFIED, {}),
], ids=["mounted together", "beside another sandbox", "v2 alone"])
def test_controllers_are_found_where_they_are_mounted(text: str, found: dict[str, str]) -> None:
    assert {name: str(place) for name, place in cgroups.mount_points(text).items()} == found


def test_machine_without_the_controllers_is_told_which_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "mounted", lambda: cgroups.mount_points(TOGETHER))
    with pytest.raises(SandboxError, match="no freezer, cpuset, devices"):
        cgroups.check_able()


def test_job_is_killed_over_its_memory_and_opens_only_the_gpus_that_it_was_given(
    own_sandbox: Callable[..., Sandbox]
) -> None:
    sandbox = own_sandbox(2, cgroup=True)
    work = make_workdir(sandbox)
    groups = [place / cgroups.group_name(sandbox.dir) for place in cgroups.mounted().values()]
    assert all(group.is_dir() for group in groups)

    argv = ["srun", "--nodes=2", "--mem=100", "bash", "-c", EAT]
    done = sandbox.run(argv, cwd=work)
    assert "had it all" not in done.stdout and done.returncode, done.stderr
    assert "Detected 1 oom" in done.stderr and re.search("task [01]: Out Of Memory", done.stderr), done.stderr

    look = f"for i in 0 1 2; do cat {sandbox.dir}/gpu/nvidia$i; done"
    told = sandbox.run(["srun", "--gpus-per-node=2", "bash", "-c", look], cwd=work).stderr
    # There is no driver behind them (ENXIO); the third one was not given to the job (EPERM).
    assert told.count("No such device or address") == 2 and "nvidia2: Operation not permitted" in told, told

    sandbox.down()
    assert not any(group.exists() for group in groups)


def test_process_that_leaves_its_session_ends_with_its_step(own_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = own_sandbox(1, cgroup=True)
    leave = "setsid sleep 300 & until [ $(ps -o sid= $!) = $! ]; do sleep 0.05; done; echo $!"
    argv = ["srun", "bash", "-c", leave]
    done = sandbox.run(argv, cwd=make_workdir(sandbox))
    wait_until(lambda: not Path(f"/proc/{int(done.stdout)}").exists(), 60, "it goes on")


def test_sandbox_with_a_suspended_job_goes_down_with_all_of_its_groups(own_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = own_sandbox(1, cgroup=True)
    groups = [place / cgroups.group_name(sandbox.dir) for place in cgroups.mounted().values()]
    argv = ["sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 300"]
    job = sandbox.run(argv, cwd=make_workdir(sandbox)).stdout.strip()
    states = sandbox.dir / "cgroup" / "freezer" / "slurm_n0"
    wait_until(lambda: any(states.glob("**/step_batch")), 60, "it does not start")
    sandbox.slurm(["scontrol", "suspend", job])
    wait_until(lambda: "FROZEN\n" in [path.read_text() for path in states.glob("**/freezer.state")], 60, "not frozen")

    sandbox.down()

    assert not any(group.exists() for group in groups)
    assert str(sandbox.dir) not in Path("/proc/self/mountinfo").read_text()


def test_groups_of_a_sandbox_that_was_killed_long_ago_are_removed_by_the_next_one(
    own_sandbox: Callable[..., Sandbox]
) -> None:
    sandbox = own_sandbox(1, cgroup=True)
    freezer, memory = (cgroups.mounted()[name] for name in ("freezer", "memory"))
    dead, living = f"{cgroups.PREFIX}test-{os.getpid()}-dead", cgroups.group_name(sandbox.dir)
    for place in (freezer, memory):
        (place / dead / "slurm_n0").mkdir(parents=True)
    try:
        for name in (dead, living):
            os.utime(freezer / name, (0, 0))
        with registry.locked():
            cgroups.sweep_dead()
        assert not (freezer / dead).exists() and not (memory / dead).exists()
        assert (freezer / living).exists() and (memory / living).exists()
    finally:
        for place in (freezer, memory):
            if (place / dead).exists():
                (place / dead / "slurm_n0").rmdir()
                (place / dead).rmdir()
