"""Fixtures: a real Slurm for tests.

* `sandbox`: four nodes with 8 fake GPUs each, one sandbox per pytest (xdist) worker, clean at the start of every test:
  no job, no stray process, every node idle. A test may crash its nodes and slurmctld (`sandbox.crash("ctl")`).
* `own_sandbox`: a factory, `own_sandbox(nodes=2, conf={"KillWait": "5"})`, to get another shape or to wreck it; takes
  every option of Sandbox.up (accounting, netns, preemption, …).
* `workdir`: a new folder inside `sandbox` that belongs to sl-alice and can be read, not written, by group sl-team.
  `make_workdir(sandbox, name)` makes one in any sandbox. (pytest's tmp_path is closed to ordinary users.)

Without root or Slurm such a test is skipped, with the reason; with SAFELAUNCH_REQUIRE_SLURM=1 it fails.
Every test that starts a sandbox carries the markers `slurm` and `root` by itself.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from safelaunch.base.io import durable
from safelaunch.errors import SandboxError
from safelaunch.sandbox import cgroups, daemons, registry, sites, users
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.sandbox.namespaces import command_name
from tests import ramdisk
from tests.patience import Patience, is_so_within

RESET_TIMEOUT_S = 20.0      # it takes less than one; a new sandbox takes four
SOON_IDLE_S = 3.0           # without jobs; a node that is drained never is
ORPHANS_TIMEOUT_S = 300.0   # a sandbox that was left in the middle of a test takes some seconds to end
CLOCKS_AGREE_S = 1.0        # a process' time of birth is known to a tick, from a boot time in whole seconds
# Above what Sandbox.up hands out by port, and below Slurm's last id (MaxJobId, 67,043,328).
FIRST_JOB, LAST_JOB, JOBS_EACH = 20_000_001, 60_000_000, 2_000
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "slurm_here" in getattr(item, "fixturenames", ()):
            item.add_marker("slurm")
            item.add_marker("root")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Under SAFELAUNCH_REQUIRE_SLURM=1 ready the machine before any worker starts, and end the run if it cannot be."""
    if is_required() and not hasattr(session.config, "workerinput"):
        try:
            daemons.check_able()
            ready_machine()
        except SandboxError as unable:
            pytest.exit(f"{unable.message}. {unable.hint or ''}", returncode=pytest.ExitCode.TESTS_FAILED)


@pytest.fixture(scope="session")
def slurm_here() -> None:
    """Skip, or fail under SAFELAUNCH_REQUIRE_SLURM=1, where no sandbox can be started; ready the machine for them."""
    skip_unless_able()
    ready_machine()


def ready_machine() -> None:
    """Make the users, and end the sandboxes that dead test runs have left; any number of processes may do so at once.
    """
    users.ensure_users()
    with registry.locked("orphans-lock", ORPHANS_TIMEOUT_S):
        for entry in registry.entries():
            if is_orphan(entry):
                Sandbox.find(entry.name).down()


def is_orphan(entry: registry.RegisteredSandbox) -> bool:
    """Whether the test run that made this sandbox has ended; its pid may be somebody else's by now."""
    owner = re.match(r"pytest-(\d+)-", entry.name)
    if owner is None:
        return False
    try:
        born_s = (Path(entry.dir) / registry.MARKER).stat().st_mtime
        return psutil.Process(int(owner[1])).create_time() > born_s + CLOCKS_AGREE_S
    except psutil.NoSuchProcess:
        return True
    except FileNotFoundError:   # its owner has just ended it
        return False


def is_required() -> bool:
    """Whether tests that need a real Slurm must run here."""
    return os.environ.get("SAFELAUNCH_REQUIRE_SLURM") == "1"


def skip_unless_able(
    *, with_accounting: bool = False, with_netns: bool = False, with_cgroup: bool = False
) -> None:
    """Skip the test, or fail it under SAFELAUNCH_REQUIRE_SLURM=1, where such a sandbox cannot be started.

    A machine without cgroup v1 is no incomplete one: there such a test is skipped in any case.
    """
    try:
        daemons.check_able(with_accounting=with_accounting, with_netns=with_netns)
        if with_cgroup:
            try:
                cgroups.check_able()
            except SandboxError as unable:
                pytest.skip(f"{unable.message}. {unable.hint}")
    except SandboxError as unable:
        reason = f"{unable.message}. {unable.hint}"
        if is_required():
            pytest.fail(reason)
        pytest.skip(reason)


class SharedSandbox:
    """The worker's sandbox, made when first asked for and made anew when a test left it beyond repair."""

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None

    def get(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = new_sandbox()
        return self._sandbox

    def clean(self) -> None:
        if self._sandbox is None:
            return
        try:
            reset(self._sandbox)
        except (SandboxError, subprocess.TimeoutExpired) as broken:
            warnings.warn(f"sandbox made anew: {broken}", stacklevel=2)
            self.down()

    def down(self) -> None:
        if self._sandbox is not None:
            self._sandbox.down()
            self._sandbox = None


@pytest.fixture(scope="session")
def shared_sandbox(slurm_here: None) -> Iterator[SharedSandbox]:
    shared = SharedSandbox()
    yield shared
    shared.down()


@pytest.fixture
def sandbox(shared_sandbox: SharedSandbox) -> Iterator[Sandbox]:
    yield shared_sandbox.get()
    shared_sandbox.clean()


@pytest.fixture
def own_sandbox(slurm_here: None) -> Iterator[Callable[..., Sandbox]]:
    with ExitStack() as made:   # one that does not go down keeps no other one up
        def make(nodes: int = 4, **options: Any) -> Sandbox:
            sandbox = new_sandbox(nodes, **options)
            made.callback(sandbox.down)
            return sandbox

        yield make


@pytest.fixture
def workdir(sandbox: Sandbox) -> Path:
    return make_workdir(sandbox)


def make_workdir(sandbox: Sandbox, name: str | None = None) -> Path:
    """A new folder of sl-alice inside the sandbox: mode 0750, group sl-team."""
    folder = sandbox.dir / "work" / (name or f"t{next(_numbers)}")
    folder.mkdir()
    shutil.chown(folder, "sl-alice", users.TEAM)
    folder.chmod(0o750)
    return folder


def new_sandbox(nodes: int = 4, *, conf: dict[str, str] | None = None, **options: Any) -> Sandbox:
    """A sandbox of this process, `options` as in Sandbox.up; skips, or fails, where these need what is missing here.

    Its job ids are no other sandbox's: node-local folders of jobs are named by them, and lie in one /tmp.
    With SAFELAUNCH_SANDBOX=cgroup each sandbox has cgroups, those of tests that know nothing of them as well.
    """
    wanted = os.environ.get("SAFELAUNCH_SANDBOX", "")
    assert wanted in ("", "cgroup"), f"SAFELAUNCH_SANDBOX={wanted}: expected cgroup"
    options.setdefault("cgroup", wanted == "cgroup")
    skip_unless_able(with_accounting=options.get("accounting", False), with_netns=options.get("netns", False),
                     with_cgroup=options["cgroup"])
    name = f"pytest-{os.getpid()}-{next(_numbers)}"
    first_job = {"FirstJobId": str(take_job_ids())}
    root = sites.room(_root(options), options.get("site", ()))
    return Sandbox.up(root / name, nodes, name=name, conf={**first_job, **(conf or {})}, **options)


def _root(options: dict[str, Any]) -> Path:
    """The folder of new sandboxes: in memory, but where that would count as a job's own (memory control groups)."""
    if options["cgroup"] or ramdisk.room() == registry.ROOT.parent:
        return registry.ROOT
    root = ramdisk.room() / registry.ROOT.name
    root.mkdir(mode=0o755, exist_ok=True)
    return root


def take_job_ids() -> int:
    """The first of JOBS_EACH ids that no sandbox of any test run on this machine has had for 20,000 sandboxes."""
    with registry.locked():
        file = registry.ROOT / "next-job"
        first = int(file.read_text()) if file.exists() else FIRST_JOB
        following = first + JOBS_EACH
        # Whole or not at all: a run that is killed here must not leave an empty file to all later ones.
        durable.put(file, str(following if following + JOBS_EACH <= LAST_JOB else FIRST_JOB).encode(), 0o644)
    return first


def wait_until(is_so: Callable[[], bool], timeout_s: float, complaint: str, every_s: float = 0.02) -> None:
    """Return as soon as `is_so` is true; AssertionError with the complaint when it does not become so in time."""
    assert is_so_within(is_so, timeout_s, every_s), f"{complaint} within {timeout_s:.0f} s"


def reset(sandbox: Sandbox) -> None:
    """Cancel all jobs, end all strays, heal all nodes, wait until all is idle; SandboxError if it will not be."""
    daemons.machine(sandbox.dir, daemons.LOGIN).kill()
    for name in reversed(sandbox.machines):  # servers first: a node comes back when slurmctld says so
        sandbox.heal(name)
    patience = Patience(RESET_TIMEOUT_S)
    while jobs := sandbox.slurm(["squeue", "-h", "-o", "%A"]).split():
        if patience.is_over():
            raise SandboxError(f"jobs that do not end: {' '.join(jobs)}")
        sandbox.run(["scancel", *jobs], user="root", cwd=sandbox.dir)  # fails for a job that has just ended: no matter
        for node in sandbox.nodes:
            # Not waiting for KillWait: all but slurmd goes at once. With the stepds too this takes 0.3 s; without, 3 s.
            daemons.machine(sandbox.dir, node).kill(spare=lambda pid: command_name(pid) == "slurmd")
        time.sleep(0.05)
    with suppress(SandboxError):
        sandbox.wait_idle(SOON_IDLE_S)
        return
    for node in sandbox.nodes:
        sandbox.heal(node)  # a step that could not be killed drains its node
    sandbox.wait_idle()
