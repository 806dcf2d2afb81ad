"""Where the benchmarks happen: a sandbox, and safelaunch in it as an ordinary user's pip would have installed it."""

from __future__ import annotations

import compileall
import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import safelaunch
from safelaunch.errors import SandboxError
from safelaunch.sandbox import registry, users
from safelaunch.sandbox.cluster import Sandbox

ALICE = "sl-alice"
# The sandbox schedules every second so that tests are quick. Peers are measured as they are on a cluster whose
# operators have left Slurm's defaults (slurm.conf(5): bf_interval=30, batch_sched_delay=3, sched_interval=60).
SLURM_DEFAULTS = {"SchedulerParameters": "bf_interval=30"}
_numbers = itertools.count()


@dataclass(frozen=True)
class Stage:
    """A sandbox with an installed safelaunch."""

    sandbox: Sandbox
    site: Path      # holds the package, byte-compiled as pip leaves it

    @property
    def argv(self) -> list[str]:
        """What the shell runs when a user types `safelaunch`."""
        script = Path(sys.executable).with_name("safelaunch")
        return [str(script)] if script.exists() else [sys.executable, "-m", "safelaunch"]

    @property
    def env(self) -> dict[str, str]:
        """The installed copy first on the path."""
        return {"PYTHONPATH": str(self.site)}

    def run(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None,
            timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """`argv` typed by the ordinary user, which has to succeed."""
        done = self.sandbox.run(argv, user=ALICE, cwd=cwd, env={**self.env, **(env or {})}, timeout_s=timeout_s)
        if done.returncode:
            raise SandboxError(f"{' '.join(argv)} ended with exit code {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def time_s(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> float:
        """Seconds of the whole process, the entry into the sandbox's login machine (4 ms here) included."""
        start_s = time.perf_counter()
        self.run(argv, cwd=cwd, env=env)
        return time.perf_counter() - start_s

    def make_workdir(self) -> Path:
        """A new folder of the ordinary user."""
        folder = self.sandbox.dir / "work" / f"w{next(_numbers)}"
        folder.mkdir(parents=True)
        shutil.chown(folder, ALICE, users.TEAM)
        return folder


@contextlib.contextmanager
def open_stage(nodes: int, *, cpus: int = 8, conf: Mapping[str, str] | None = None) -> Iterator[Stage]:
    """A stage whose sandbox ends with the block; SystemExit with the reason where there can be none."""
    name = f"bench-{os.getpid()}-{next(_numbers)}"
    try:
        # Node-local folders are named by job id: never one of an earlier sandbox.
        first_job = {"FirstJobId": str(int(time.time() * 100) % 60_000_000 + 1)}
        sandbox = Sandbox.up(registry.ROOT / name, nodes, name=name, cpus=cpus, conf={**first_job, **(conf or {})})
    except SandboxError as unable:
        raise SystemExit(f"benchmarks: {unable.message}. {unable.hint or ''}".rstrip()) from unable
    try:
        _check_python(sandbox)
        yield Stage(sandbox, _install(sandbox.dir / "site"))
    finally:
        sandbox.down()


def _install(site: Path) -> Path:
    """The package as the wheel lays it out, compiled: below a checkout of root's an ordinary user can write no .pyc."""
    package = Path(safelaunch.__file__).parent
    shutil.copytree(package, site / "safelaunch", ignore=shutil.ignore_patterns("__pycache__"))
    example = package.parent.parent / "examples" / "stories"
    if example.is_dir():   # in a checkout; an installed package has it inside
        shutil.copytree(example, site / "safelaunch" / "examples" / "stories")
    compileall.compile_dir(site, quiet=1)
    return site


def _check_python(sandbox: Sandbox) -> None:
    try:
        done = sandbox.run([sys.executable, "-c", "import yaml, click"], user=ALICE, cwd=Path("/"))
        said = done.stderr.strip()
    except OSError as error:
        done, said = None, str(error)
    if done is None or done.returncode:
        raise SystemExit(f"benchmarks: {ALICE} cannot run {sys.executable} ({said[-200:]}): use a venv of the system's "
                         "Python in a folder that others can read")
