"""Sites that forbid things, and daemons that are stopped apart from the jobs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from safelaunch.errors import SandboxError
from safelaunch.sandbox import daemons, sites
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.sandbox.namespaces import command_name, state_of
from tests import admin
from tests.sandboxes import make_workdir, wait_until


@pytest.fixture
def strict(own_sandbox: Callable[..., Sandbox]) -> Iterator[Sandbox]:
    yield own_sandbox(2)


def sbatch(sandbox: Sandbox, *options: str) -> tuple[int, str]:
    done = sandbox.run(["sbatch", "--parsable", *options, "--wrap", "sleep 1000"])
    return done.returncode, (done.stderr or done.stdout).strip()


def test_a_site_without_dependencies_refuses_them_at_submission_and_later(strict: Sandbox) -> None:
    _, job = sbatch(strict)
    admin.forbid(strict, "dependency")
    code, said = sbatch(strict, f"--dependency=afterany:{job}")
    assert (code, "dependencies are not allowed" in said) == (1, True)
    code, later = sbatch(strict, "--begin=now+1hour")
    assert code == 0
    changed = strict.run(["scontrol", "update", f"JobId={later}", f"Dependency=afterany:{job}"])
    assert changed.returncode == 1
    assert strict.run(["scontrol", "update", f"JobId={later}", "StartTime=now"]).returncode == 0


@pytest.mark.parametrize("command", ["sbatch", "scontrol"])
def test_a_forbidden_command_is_missing_on_nodes_and_there_elsewhere(strict: Sandbox, command: str) -> None:
    admin.forbid(strict, command)
    find = f"command -v {command} || echo missing; command -v squeue; {command} --version"
    inside = strict.run(["srun", "-N1", "bash", "-c", find])
    assert (inside.returncode, inside.stdout.split()) == (127, ["missing", "/usr/bin/squeue"]), inside.stderr
    assert strict.run([command, "--version"]).returncode == 0


def test_commands_can_be_forbidden_together(strict: Sandbox) -> None:
    admin.forbid(strict, "sbatch")
    admin.forbid(strict, "scontrol")
    found = strict.run(["srun", "-N1", "bash", "-c", "command -v sbatch scontrol squeue"])
    assert found.stdout.split() == ["/usr/bin/squeue"]


def test_what_is_forbidden_stays_so_when_a_node_or_slurmctld_comes_back(strict: Sandbox) -> None:
    admin.forbid(strict, "sbatch")
    admin.forbid(strict, "dependency")
    strict.crash("n1")
    strict.heal("n1")
    admin.stop_ctl(strict)
    strict.heal("ctl")
    assert strict.run(["srun", "-w", "n1", "bash", "-c", "command -v sbatch"]).returncode == 1
    assert sbatch(strict, "--dependency=singleton")[0] == 1


def test_what_is_mounted_later_reaches_the_nodes_of_a_strict_site(strict: Sandbox) -> None:
    admin.forbid(strict, "sbatch")
    place = make_workdir(strict)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True, timeout=60)
    (place / "mark").touch()
    assert strict.run(["srun", "-N2", "ls", str(place)]).stdout == "mark\nmark\n"


def test_an_unknown_site_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SandboxError, match=r"--site coffee: known are .*tmp-noexec"):
        sites.check(Path("/var/lib/box"), ["coffee"], has_netns=False)


def test_a_folder_that_nodes_would_not_see_is_refused_with_another_one() -> None:
    with pytest.raises(SandboxError, match="a /tmp of their own") as refused:
        sites.check(Path("/tmp/box"), ["tmp-small"], has_netns=False)
    assert str(sites.ROOM / "box") in str(refused.value.hint)


def test_a_second_network_needs_a_first_one() -> None:
    with pytest.raises(SandboxError, match="only with --netns"):
        sites.check(Path("/var/lib/box"), [sites.TWO_NETWORKS], has_netns=False)


def test_a_slurmctld_that_finds_no_hosts_has_no_network_of_its_own() -> None:
    with pytest.raises(SandboxError, match="only without --netns"):
        sites.check(Path("/var/lib/box"), [sites.UNKNOWN_HOSTS], has_netns=True)


@pytest.mark.parametrize("site", [(), (sites.UNKNOWN_HOSTS,)], ids=["plain", "unknown hosts"])
def test_slurmctld_finds_a_login_host_by_name_but_where_that_is_the_site(
    own_sandbox: Callable[..., Sandbox], site: tuple[str, ...]
) -> None:
    found = subprocess.run(daemons.machine(own_sandbox(1, site=site).dir, "ctl").enter(["getent", "ahosts", "login"]))
    assert (found.returncode == 0) == (not site)


def test_a_frozen_slurmd_starts_nothing_while_its_job_goes_on(sandbox: Sandbox) -> None:
    file = make_workdir(sandbox) / "count"
    count = f"i=0; while :; do echo $((i += 1)) >> {file}; sleep 0.05; done"
    sandbox.run(["sbatch", "-N1", "-w", "n1", "--wrap", count])
    wait_until(lambda: file.exists() and file.stat().st_size > 0, 60, "the job did not start")
    admin.freeze_slurmd(sandbox, "n1")
    so_far = file.stat().st_size
    later = sandbox.start(["srun", "-N1", "-w", "n1", "hostname", "-s"])
    wait_until(lambda: file.stat().st_size > so_far, 60, "the job stands still")
    stopped = {command_name(pid) for pid in sandbox.machine("n1").pids() if state_of(pid) == psutil.STATUS_STOPPED}
    assert stopped == {"slurmd"}
    assert later.poll() is None
    admin.thaw_slurmd(sandbox, "n1")
    assert later.communicate(timeout=60)[0] == "n1\n"


def test_a_slurmctld_that_was_ended_properly_comes_back_with_every_job(sandbox: Sandbox) -> None:
    jobs = [sbatch(sandbox)[1] for _ in range(3)]
    admin.stop_ctl(sandbox)
    assert sandbox.machine("ctl").pids() == []
    sandbox.heal("ctl")
    assert set(jobs) <= set(sandbox.slurm(["squeue", "-h", "-o", "%A"]).split())
