"""Fixtures for drills: a run submitted by an ordinary user on a real Slurm, and what became of it.

`submit(yaml, …)` writes a train.yaml into sl-alice's folder and types `safelaunch submit` there. The trainer is
tests/trainers/steps.py, under the system's Python as a user would have it.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pytest

from safelaunch.base.model import Event
from safelaunch.errors import SandboxError
from safelaunch.run.fold.state import State
from safelaunch.run.io import runfolder
from safelaunch.run.plan import Plan
from safelaunch.sandbox.cluster import Sandbox
from tests import ramdisk
from tests.patience import is_so_within
from tests.sandboxes import make_workdir

ROOT = Path(__file__).parent.parent
ALICE = "sl-alice"


@dataclass(frozen=True)
class Installation:
    """The checkout as ordinary users see it: paths that they can read."""

    root: Path
    python: Path

    @property
    def argv(self) -> list[str]:
        """What stands for `safelaunch` on their command line."""
        return [str(self.python), "-m", "safelaunch"]

    @property
    def env(self) -> dict[str, str]:
        """The checkout first on their path, wherever it is mounted."""
        return {"PYTHONPATH": str(self.root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}

    @property
    def trainer(self) -> str:
        """Command line of the test trainer."""
        return f"python3 -u {self.root}/tests/trainers/steps.py"


@pytest.fixture(scope="session")
def installation(slurm_here: None) -> Iterator[Installation]:
    """The checkout as `installed` makes it reachable."""
    with installed() as found:
        yield found


@contextmanager
def installed() -> Iterator[Installation]:
    """The checkout and its interpreter where sl-alice can reach them: a bind mount when they lie in a closed folder."""
    python = Path(sys.executable)
    if not _can_run(python, "-c", "import sys"):
        if not _can_run(Path(os.path.realpath("/usr/bin/python3")), "-c", "import sys"):
            pytest.skip("ordinary users have no Python here")
        if os.path.realpath(python) != os.path.realpath("/usr/bin/python3"):
            _miss(f"ordinary users cannot run {python}; use a venv of /usr/bin/python3 (make test)")
    if _can_run(python, "-c", "import yaml, click") and _can_run(Path("/usr/bin/test"), "-r", str(ROOT / "src")):
        yield Installation(ROOT, python)
        return
    mount = Path(tempfile.mkdtemp(prefix="safelaunch-checkout-"))
    mount.chmod(0o755)
    subprocess.run(["mount", "--bind", str(ROOT), str(mount)], check=True)
    try:
        yield Installation(mount, mount / python.relative_to(ROOT))
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)
        mount.rmdir()


def _can_run(program: Path, *words: str) -> bool:
    try:
        pwd.getpwnam(ALICE)
    except KeyError:
        from safelaunch.sandbox import users

        users.ensure_users()
    account = pwd.getpwnam(ALICE)
    try:
        done = subprocess.run(
            [str(program), *words], user=account.pw_uid, group=account.pw_gid, extra_groups=[], cwd="/",
            capture_output=True, timeout=60, env={"PATH": "/usr/bin:/bin"})
    except OSError:
        return False
    return done.returncode == 0


def _miss(reason: str) -> None:
    if os.environ.get("SAFELAUNCH_REQUIRE_SLURM") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def journal_files(run_dir: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, inode and size of each writer's file: while these stay, so do events and state."""
    with os.scandir(run_dir / "journal") as files:   # a look for the folder's health comes and goes beside them
        return tuple(sorted((file.name, file.inode(), file.stat().st_size) for file in files
                            if file.name.endswith(".jsonl")))


@lru_cache(maxsize=4)
def events_of(run_dir: Path, files: tuple[tuple[str, int, int], ...]) -> tuple[Event, ...]:
    """The journal's events. Drills ask 20 times a second, and are mostly answered what they were before."""
    return runfolder.load(run_dir).journal().events


@lru_cache(maxsize=4)
def state_of(run_dir: Path, files: tuple[tuple[str, int, int], ...]) -> State:
    """The run's state."""
    return runfolder.load(run_dir).state()


@lru_cache(maxsize=4)
def plan_of(run_dir: Path) -> Plan:
    """The run's plan, which stays as it was submitted."""
    return runfolder.load(run_dir).plan


@dataclass
class Drill:
    """One submitted run, looked at with root's eyes."""

    sandbox: Sandbox
    installation: Installation
    folder: Path
    run_dir: Path
    job: str
    noise: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)   # in which it was submitted

    # --- what happened --------------------------------------------------------------------------------------------

    def events(self, kind: str | None = None) -> list[Event]:
        """The journal's events, of one kind if named."""
        every = events_of(self.run_dir, journal_files(self.run_dir))
        return [event for event in every if kind is None or event.event == kind]

    def state(self) -> State:
        """The run's state."""
        return state_of(self.run_dir, journal_files(self.run_dir))

    def wait_for(self, what: Callable[[], object], timeout_s: float, complaint: str) -> None:
        """Return when `what()` is true; fail with the run's own words otherwise."""
        if not is_so_within(what, timeout_s, 0.05):
            pytest.fail(f"{complaint} within {timeout_s} s\n{self.story()}")

    def wait_event(self, kind: str, count: int = 1, timeout_s: float = 60.0) -> Event:
        """The count-th event of a kind."""
        self.wait_for(lambda: len(self.events(kind)) >= count, timeout_s, f"no {kind} number {count}")
        return self.events(kind)[count - 1]

    def wait_step(self, step: int, attempt: int | None = None, timeout_s: float = 60.0) -> None:
        """Return when a rank has printed this step (or a later one)."""
        self.wait_for(lambda: max(self.steps(attempt), default=0) >= step, timeout_s, f"step {step} was not reached")

    def wait_ranks(self, count: int, attempt: int = 1) -> None:
        """Return when each of so many ranks has printed a step: it has its handlers by then."""
        self.wait_for(lambda: has_each_rank(self.log(attempt), count), 60, f"not all {count} ranks made a step")

    def wait_end(self, timeout_s: float = 120.0) -> State:
        """The state after the run's end, once no job of it is left."""
        self.wait_for(lambda: self.state().ended, timeout_s, "the run did not end")
        self.wait_for(lambda: not self.jobs(), 60.0, "jobs were left")
        return self.state()

    def jobs(self) -> list[str]:
        """Unfinished jobs of this run: "id state"."""
        name = plan_of(self.run_dir).job_name
        lines = self.sandbox.slurm(["squeue", "-h", "--name", name, "-o", "%i %T"]).splitlines()
        return [line for line in lines if not line.endswith(("COMPLETED", "CANCELLED", "COMPLETING"))]

    def log(self, attempt: int) -> str:
        """main.log of an attempt; "" before there is one."""
        path = self.run_dir / "attempts" / f"{attempt:04d}" / "main.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def steps(self, attempt: int | None = None) -> list[int]:
        """Steps printed so far, in order."""
        numbers = [attempt] if attempt else range(1, len(list((self.run_dir / "attempts").glob("0*"))) + 1)
        return [int(step) for number in numbers for step in re.findall(r"step (\d+) loss", self.log(number))]

    def losses(self, rank: int = 0, attempt: int | None = None) -> dict[int, str]:
        """step → loss as one rank printed it, in one attempt if named; else a later attempt's word counts."""
        found: dict[int, str] = {}
        every = range(1, len(list((self.run_dir / "attempts").glob("0*"))) + 1)
        for number in every if attempt is None else [attempt]:
            pairs = re.findall(rf"step (\d+) loss (\S+) rank {rank}\b", self.log(number))
            found.update({int(step): loss for step, loss in pairs})
        return found

    def story(self) -> str:
        """All that the run says of itself, for a failed test."""
        parts = [path.read_text(errors="replace") for path in sorted(self.run_dir.glob("slurm-*.out"))]
        parts += [f"{e.t:.2f} {e.host} {e.event} {json.dumps(dict(e.data))[:300]}" for e in self.events()[-40:]]
        parts += [last_words(path) for path in self.local_dirs_files("leader.out")]
        logs = sorted((self.run_dir / "attempts").glob("0*/main.log"))
        parts += [f"--- {path.parent.name}\n{path.read_text(errors='replace')[-2000:]}" for path in logs[-2:]]
        try:
            parts += self.jobs()
        except SandboxError as failure:   # where slurmctld's silence is the fault
            parts.append(str(failure))
        return "\n".join([*parts, *self.noise])

    # --- where its processes are ----------------------------------------------------------------------------------

    def local_dirs_files(self, name: str) -> list[Path]:
        """Files of that name in the node-local folders of this run."""
        run_id = plan_of(self.run_dir).run_id
        mine = f"safelaunch-{pwd.getpwnam(ALICE).pw_uid}"
        return sorted(path for disk in (Path("/tmp"), self.sandbox.dir / "local")
                      for path in (disk / mine).glob(f"{run_id}-*/{name}"))

    def pids(self, *needles: str) -> list[int]:
        """Processes whose command line holds every needle and this run's folder or id in it or its environment."""
        run_id = plan_of(self.run_dir).run_id.encode()
        found = []
        for path in Path("/proc").iterdir():
            if not path.name.isdigit():
                continue
            try:
                words = (path / "cmdline").read_bytes()
                if all(needle.encode() in words for needle in needles) and (
                        run_id in words or str(self.run_dir).encode() in words
                        or run_id in (path / "environ").read_bytes()):
                    found.append(int(path.name))
            except OSError:
                continue
        return found

    def leader(self) -> int | None:
        """The leader's pid."""
        old = "from safelaunch.loop import main"   # in a job script of an earlier release
        found = self.pids("injob.py", str(self.run_dir)) or self.pids(old, str(self.run_dir))
        found = [pid for pid in found if _is_python(pid)
                 and _parent_name(pid) == "slurm_script"]
        return found[0] if found else None

    def ranks(self, node: str | None = None) -> list[int]:
        """The trainer's processes, of one node if named."""
        found = [pid for pid in self.pids("steps.py") if _is_python(pid)
                 and b"SAFELAUNCH_GUARD" not in environ_of(pid) and b"-S" not in _words(pid)]
        if node is None:
            return found
        return [pid for pid in found if f"SLURMD_NODENAME={node}".encode() in environ_of(pid).split(b"\0")]

    def kill(self, pid: int | None, number: int = signal.SIGKILL) -> None:
        """Signal one process of this run."""
        assert pid is not None, self.story()
        os.kill(pid, number)

    def as_user(self, *words: str, user: str = ALICE, timeout_s: float = 180.0) -> subprocess.CompletedProcess[str]:
        """`safelaunch WORDS` typed by a user in the run's folder."""
        return self.sandbox.run([*self.installation.argv, *words], user=user, cwd=self.folder, timeout_s=timeout_s,
                                env=self.env if user == ALICE else self.installation.env)


def last_words(path: Path) -> str:
    """The end of a file that its owner may remove at any moment; "" where that has happened."""
    try:
        return path.read_text(errors="replace")[-2000:]
    except FileNotFoundError:
        return ""


def has_each_rank(log: str, count: int) -> bool:
    """Whether a line of a step of each rank is there."""
    return set(map(str, range(count))) <= set(re.findall(r"step \d+ loss \S+ rank (\d+)$", log, re.MULTILINE))


def by_age(pids: Iterable[int]) -> list[int]:
    """Those that live, the oldest first. Their numbers do not tell: they begin anew, here after each 32,768."""
    ages = {}
    for pid in pids:
        with suppress(OSError):
            ages[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])   # proc(5): starttime
    return sorted(ages, key=lambda pid: (ages[pid], pid))


def _parent_name(pid: int) -> str:
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return Path(f"/proc/{parent}/comm").read_text().strip()
    except (OSError, ValueError):
        return ""


def comm_of(pid: int) -> str:
    """The name of a process; "" where it has just ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def parent_of(pid: int | None) -> int:
    """The pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def environ_of(pid: int) -> bytes:
    """The environment of a process as the kernel has it; b"" where it has just ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _is_python(pid: int) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python")
    except OSError:   # it has just ended
        return False


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _local_dir(sandbox: Sandbox) -> dict[str, str]:
    """The nodes' own disk in memory, as the sandbox is; else /tmp, as where nobody says another one."""
    if not sandbox.dir.is_relative_to(ramdisk.MEMORY):
        return {}
    local = sandbox.dir / "local"
    local.mkdir(exist_ok=True)
    local.chmod(0o1777)
    return {"SAFELAUNCH_LOCAL_DIR": str(local)}


Submit = Callable[..., Drill]                # trainer flags, nodes, tasks, overrides, … → the submitted run
Submitter = Callable[[Sandbox], Submit]


@pytest.fixture
def submit(installation: Installation) -> Iterator[Submitter]:
    """`submit(sandbox)(trainer flags, slurm={…}, …)` → Drill."""
    drills: list[Drill] = []

    def for_sandbox(sandbox: Sandbox) -> Submit:
        def go(flags: str = "", *, nodes: int = 2, tasks: int = 2, extra: str = "", overrides: tuple[str, ...] = (),
               command: str | None = None, folder: Path | None = None, env: dict[str, str] | None = None,
               wait_started: bool = True) -> Drill:
            work = folder or make_workdir(sandbox)
            # The user's registry of runs and ledger of nodes: what one drill says of a node must not reach the next.
            own = {**installation.env, **_local_dir(sandbox), "XDG_STATE_HOME": f"{work}/.state", **(env or {})}
            shell = command or f"{installation.trainer} {flags} --ckpt ckpt ${{RESUME_ARGS}}"
            by = "" if "RESUME_ARGS" in shell else ", by: training"
            yaml = (
                "name: drill\n"
                f"command: {json.dumps(shell)}\n"
                f"slurm: {{nodes: {nodes}, ntasks_per_node: {tasks}, time: 30}}\n"
                "launch: {with: srun}\n"
                f'resume: {{dir: ckpt, format: torch, args: "--load {{path}}"{by}}}\n{extra}')
            (work / "train.yaml").write_text(yaml)
            done = sandbox.run([*installation.argv, "submit", "train.yaml", "--json", *overrides], cwd=work, user=ALICE,
                               env=own, timeout_s=180)
            assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
            told = json.loads(done.stdout)
            drill = Drill(sandbox, installation, work, Path(told["run_dir"]), told["job"], [done.stderr], own)
            drills.append(drill)
            if wait_started:
                drill.wait_event("attempt_started")
            return drill
        return go

    yield for_sandbox
    for drill in drills:
        for path in drill.local_dirs_files("control.json") if drill.run_dir.exists() else ():
            shutil.rmtree(path.parent, ignore_errors=True)
