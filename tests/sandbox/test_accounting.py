"""sacct in a sandbox: what it says of jobs that ended in different ways, and what it says when it is gone itself."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from safelaunch.errors import SandboxError
from safelaunch.sandbox import daemons
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.sandbox.namespaces import command_name
from safelaunch.slurm import slurmtext
from tests.sandboxes import new_sandbox, reset, wait_until


@pytest.fixture(scope="module")
def booked_box(slurm_here: None) -> Iterator[Sandbox]:
    box = new_sandbox(3, accounting=True, preemption=True)
    yield box
    box.down()


@pytest.fixture
def booked(booked_box: Sandbox) -> Iterator[Sandbox]:
    """A sandbox with accounting and the partitions low, low-requeue and high; clean for each test."""
    yield booked_box
    reset(booked_box)


def submit(sandbox: Sandbox, *options: str, user: str = "sl-alice", wrap: str = "srun sleep 1000") -> str:
    done = sandbox.run(["sbatch", "--parsable", *options, "--wrap", wrap], user=user)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def state(sandbox: Sandbox, job: str) -> str:
    """The State words of every record of the job, as `A|B`."""
    done = sandbox.run(["sacct", "-n", "-X", "-D", "-P", "-o", "State", "-j", job])
    return "|".join(done.stdout.split("\n")[:-1])


def wait_for_state(sandbox: Sandbox, job: str, wanted: str) -> None:
    wait_until(lambda: state(sandbox, job) == wanted, 60, f"sacct does not say {wanted}", 0.1)


def wait_for_running(sandbox: Sandbox, job: str) -> None:
    # A cancel that meets a step at its launch takes seconds longer.
    steps = ["squeue", "-h", "-s", "-o", "%i"]
    wait_until(lambda: f"{job}.0" in sandbox.slurm(steps).split(), 60, "no step runs", 0.05)


@pytest.mark.parametrize("user", ["sl-alice", "sl-bob"])
def test_sacct_knows_the_jobs_of_ordinary_users_and_their_account(booked: Sandbox, user: str) -> None:
    job = submit(booked, user=user, wrap="true")
    wait_for_state(booked, job, "COMPLETED")
    said = booked.run(["sacct", "-n", "-X", "-P", "-o", "User,Account", "-j", job], user=user)
    assert said.stdout == f"{user}|sl-project\n"


def test_a_cancelled_job_is_told_with_the_uid_of_who_did_it(booked: Sandbox) -> None:
    job = submit(booked)
    wait_for_running(booked, job)
    booked.run(["scancel", job])
    uid = booked.run(["id", "-u"]).stdout.strip()
    wait_for_state(booked, job, f"CANCELLED by {uid}")


def test_a_requeued_job_has_a_record_for_each_life(booked: Sandbox) -> None:
    job = submit(booked)
    wait_for_running(booked, job)
    booked.run(["scontrol", "requeue", job])
    wait_for_state(booked, job, "REQUEUED|PENDING")


def test_a_preempted_job_is_cancelled_in_low(booked: Sandbox) -> None:
    low = submit(booked, "-p", "low", "-N3", "--exclusive")
    wait_for_running(booked, low)
    high = submit(booked, "-p", "high", "-N3", "--exclusive", wrap="true")
    wait_for_state(booked, high, "COMPLETED")
    assert low not in booked.slurm(["squeue", "-h", "-o", "%A"]).split()


@pytest.mark.parametrize("end", ["CANCELLED", "NODE_FAIL"])
def test_the_end_of_a_job_that_a_silent_node_keeps_completing_is_known_to_sacct(booked: Sandbox, end: str) -> None:
    """supervisor.ends.takeover asks it who ended the job before, which squeue calls COMPLETING for minutes."""
    job = submit(booked, "-N2", "-w", "n1,n2")
    wait_for_running(booked, job)
    booked.crash("n2", silent=True)
    booked.slurm(["scancel", job] if end == "CANCELLED" else
                 ["scontrol", "update", "nodename=n1", "state=down", "reason=test"])
    wait_until(lambda: state(booked, job).split(" ")[0] == end, 60, f"sacct does not say {end}", 0.1)
    assert booked.slurm(["squeue", "-h", "-j", job, "-o", "%T"]).strip() == "COMPLETING"


def test_main_is_not_preempted(booked: Sandbox) -> None:
    main = submit(booked, "-N3", "--exclusive")
    wait_for_running(booked, main)
    high = submit(booked, "-p", "high", "-N1", "--exclusive", wrap="true")
    wait_until(lambda: "Resources" in booked.slurm(["squeue", "-h", "-j", high, "-o", "%r"]), 60, "it does not wait")
    wait_for_state(booked, main, "RUNNING")


def test_a_crashed_accounting_refuses_sacct_and_keeps_its_records(booked: Sandbox) -> None:
    job = submit(booked, wrap="true")
    wait_for_state(booked, job, "COMPLETED")
    booked.crash("db")
    done = booked.run(["sacct", "-j", job])
    # In which of its words depends on whether the connection had been opened when slurmdbd died.
    assert (done.returncode, slurmtext.is_database_away(done.stderr)) == (1, True), done.stderr
    booked.heal("db")
    assert state(booked, job) == "COMPLETED"


def test_a_silent_accounting_lets_sacct_hang_and_sbatch_work(booked: Sandbox) -> None:
    booked.crash("db", silent=True)
    with pytest.raises(subprocess.TimeoutExpired):
        booked.run(["sacct"], timeout_s=1)
    job = submit(booked, wrap="true")
    booked.heal("db")
    wait_for_state(booked, job, "COMPLETED")


def test_accounting_and_cables_go_together(own_sandbox: Callable[..., Sandbox]) -> None:
    box = own_sandbox(2, accounting=True, netns=True)
    job = submit(box, "-N2", wrap="srun sacct -n -X -o JobID && exit 7")
    wait_for_state(box, job, "FAILED")
    box.crash("db", cut=True)
    with pytest.raises(subprocess.TimeoutExpired):
        box.run(["sacct"], timeout_s=1)


def test_no_system_database_is_started_or_touched(booked: Sandbox) -> None:
    running = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in booked.machine("db").pids()}
    assert running == {"mariadbd", "slurmdbd"}
    assert (booked.dir / "db").stat().st_mode & 0o077 == 0
    assert (booked.dir / "slurmdbd.conf").stat().st_mode & 0o077 == 0


def test_the_database_opens_no_file_outside_of_its_sandbox(booked: Sandbox) -> None:
    (server,) = [pid for pid in booked.machine("db").pids() if command_name(pid) == "mariadbd"]
    files = {str(link.readlink()) for link in Path(f"/proc/{server}/fd").iterdir()}
    assert {file for file in files if file.startswith("/tmp/") and not file.startswith(f"{booked.dir}/")} == set()
    assert any(file.startswith(f"{booked.dir}/db/tmp/") for file in files), files


def test_without_accounting_sacct_says_that_it_is_off(sandbox: Sandbox) -> None:
    done = sandbox.run(["sacct"])
    assert (done.returncode, "accounting storage is disabled" in done.stderr) == (1, True)
    with pytest.raises(SandboxError, match="no node 'db'"):
        sandbox.crash("db")


def test_missing_accounting_programs_are_named_with_their_packages(tmp_path: Path) -> None:
    with pytest.raises(SandboxError) as refused:
        daemons.check_able(path=str(tmp_path), with_accounting=True, with_netns=True)
    for package in ("slurmdbd", "mariadb-server-core", "iproute2", "procps"):
        assert package in str(refused.value.hint).split()
