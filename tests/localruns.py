"""Fixtures: runs on the local cluster, typed by whoever runs the tests, on a machine that seems to have no Slurm.

`submit_local(trainer flags, …)` writes a train.yaml into a new folder and types `safelaunch submit` there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from safelaunch.base.model import Event
from safelaunch.run.fold.state import Ended, State
from tests.patience import is_so_within
from tests.runs import by_age, events_of, has_each_rank, journal_files, parent_of, plan_of, state_of

ROOT = Path(__file__).parent.parent
TRAINER = f"{sys.executable} -u {ROOT}/tests/trainers/steps.py"
_SLURM = re.compile(
    r"s(batch|run|cancel|control|queue|info|acct\w*|alloc|attach|bcast|crontab|diag|prio|report|share|stat)"
)


@pytest.fixture(scope="session")
def path_without_slurm() -> Iterator[str]:
    """A PATH with all that this machine has, but Slurm's commands; unlike pytest's own folders open to every user."""
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-path-"))
    folder.chmod(0o755)
    for source in (Path("/usr/bin"), Path("/bin")):
        for program in source.iterdir():
            link = folder / program.name
            if not _SLURM.fullmatch(program.name) and not link.is_symlink():
                link.symlink_to(program)
    yield str(folder)
    shutil.rmtree(folder)


@dataclass(frozen=True)
class LocalRun:
    """One run on the local cluster."""

    folder: Path
    run_dir: Path
    env: dict[str, str]

    def type(self, *words: str, timeout_s: float = 180.0) -> subprocess.CompletedProcess[str]:
        """`safelaunch WORDS` in the run's folder."""
        return type_safelaunch(words, self.folder, self.env, timeout_s)

    def state(self) -> State:
        """The run's state."""
        return state_of(self.run_dir, journal_files(self.run_dir))

    def events(self, kind: str) -> list[Event]:
        """The journal's events of one kind."""
        return [event for event in events_of(self.run_dir, journal_files(self.run_dir)) if event.event == kind]

    def log(self, attempt: int) -> str:
        """main.log of an attempt; "" before there is one."""
        path = self.run_dir / "attempts" / f"{attempt:04d}" / "main.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def losses(self, rank: int = 0) -> dict[int, str]:
        """step → loss as one rank printed it; a later attempt's word counts."""
        logs = "\n".join(self.log(attempt) for attempt in range(1, len(self.state().attempts) + 1))
        return {int(step): loss for step, loss in re.findall(rf"step (\d+) loss (\S+) rank {rank}\b", logs)}

    def stopped(self, attempt: int = 1) -> int:
        """How many ranks say that they stopped since they were asked to.

        The supervisor's own count of those that a signal reached is told only if the attempt outlives the answers.
        """
        return self.log(attempt).count("]:stopped on request after step")

    def wait_for(self, what: Callable[[], object], timeout_s: float, complaint: str) -> None:
        """Return when `what()` is true; fail with the run's own words otherwise."""
        if not is_so_within(what, timeout_s, 0.03):
            pytest.fail(f"{complaint} within {timeout_s} s\n{self.story()}")

    def wait_step(self, step: int, attempt: int = 1) -> None:
        """Return when a rank has printed this step."""
        self.wait_for(lambda: f"step {step} loss" in self.log(attempt), 60, f"step {step} was not reached")

    def wait_ranks(self, count: int, attempt: int = 1) -> None:
        """Return when each of so many ranks has printed a step: it has its handlers by then."""
        self.wait_for(lambda: has_each_rank(self.log(attempt), count), 60, f"not all {count} ranks made a step")

    def wait_end(self) -> Ended:
        """How the run ended, once nothing of it is left."""
        self.wait_for(lambda: self.state().ended, 120, "the run did not end")
        self.wait_for(lambda: not self.pids(), 60, "processes were left")
        ended = self.state().ended
        assert ended is not None
        return ended

    def pids(self, *needles: str) -> list[int]:
        """Living processes of this run whose command line holds every needle."""
        run_id = plan_of(self.run_dir).run_id.encode()
        found = []
        for path in Path("/proc").iterdir():
            with suppress(OSError):
                if path.name.isdigit() and (words := (path / "cmdline").read_bytes()):   # a zombie's is empty
                    is_ours = all(needle.encode() in words for needle in needles) and (
                        run_id in words or str(self.run_dir).encode() in words
                        or run_id in (path / "environ").read_bytes())
                    if is_ours:
                        found.append(int(path.name))
        return found

    def leader(self) -> int:
        """The leader's pid: it waits on children of the same command line, so the oldest is it."""
        self.wait_for(lambda: self.pids("injob.py", "-S"), 60, "no leader lives")
        return by_age(self.pids("injob.py", "-S"))[0]

    @contextmanager
    def leader_dies(self) -> Iterator[None]:
        """The leader is killed, and the shell that starts it again is held back meanwhile."""
        leader = self.leader()
        shell = parent_of(leader)
        os.kill(shell, signal.SIGSTOP)
        try:
            os.kill(leader, signal.SIGKILL)
            yield
        finally:
            os.kill(shell, signal.SIGCONT)

    def ranks(self, script: str = "steps.py") -> list[int]:
        """The trainer's own processes."""
        return [pid for pid in self.pids(script) if _is_python(pid)
                and any(word.endswith(script.encode()) for word in _words(pid))]

    def story(self) -> str:
        """All that the run says of itself."""
        if not self.run_dir.exists():
            return "there is no run folder"
        outputs = [path.read_text() for path in sorted(self.run_dir.glob("*.out"))]
        return "\n".join([*outputs, self.log(1)[-1000:], self.log(2)[-1000:]])


def _is_python(pid: int) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python")
    except OSError:   # it has just ended
        return False


def _words(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def type_safelaunch(
    words: Sequence[str], folder: Path, env: dict[str, str], timeout_s: float = 180.0
) -> subprocess.CompletedProcess[str]:
    """`safelaunch WORDS` in a folder."""
    return subprocess.run([sys.executable, "-m", "safelaunch", *words], cwd=folder, env=env, text=True,
                          capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL)


@pytest.fixture
def local_env(tmp_path: Path, path_without_slurm: str) -> dict[str, str]:
    """An environment without Slurm, with a home of its own."""
    (tmp_path / "site.yaml").touch()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SAFELAUNCH_", "XDG_"))}
    return {**kept, "PATH": path_without_slurm, "HOME": str(tmp_path), "SAFELAUNCH_LOCAL_DIR": str(tmp_path),
            "SAFELAUNCH_SITE_CONFIG": str(tmp_path / "site.yaml"), "PYTHONDONTWRITEBYTECODE": "1"}


SubmitLocal = Callable[..., LocalRun]


@pytest.fixture
def local_runs() -> Iterator[list[LocalRun]]:
    """A list for runs: what is left of them ends with the test."""
    runs: list[LocalRun] = []
    yield runs
    for run in runs:
        while left := run.pids():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


@pytest.fixture
def submit_local(tmp_path: Path, local_env: dict[str, str], local_runs: list[LocalRun]) -> SubmitLocal:
    """`submit_local(trainer flags, overrides…, nodes=…, tasks=…)` → LocalRun; what is left of it ends with the test."""

    def go(flags: str, *overrides: str, nodes: int = 1, tasks: int = 1) -> LocalRun:
        write_yaml(tmp_path, flags, nodes, tasks)
        done = type_safelaunch(["submit", "train.yaml", "--json", *overrides], tmp_path, local_env)
        assert done.returncode == 0, done.stderr
        local_runs.append(LocalRun(tmp_path, Path(json.loads(done.stdout)["run_dir"]), local_env))
        return local_runs[-1]

    return go


def write_yaml(folder: Path, flags: str, nodes: int = 1, tasks: int = 1) -> None:
    """A train.yaml for the test trainer."""
    (folder / "train.yaml").write_text(
        f"name: local\ncommand: {TRAINER} --ckpt ckpt {flags} " + "${RESUME_ARGS}\n"
        f"slurm: {{nodes: {nodes}, ntasks_per_node: {tasks}}}\nlaunch: {{with: srun}}\n"
        'resume: {dir: ckpt, format: torch, args: "--load {path}"}\nrestart: {backoff: 1s}\n')
