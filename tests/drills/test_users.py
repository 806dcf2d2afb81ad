"""What users of one machine can do to each other's runs: Alice's, while Bob, of her group, and Mallory act for real.

Every command is typed, and every file made, by the user that it is named for; Alice's runs are on the local cluster.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.handmade import YAML, make_run
from tests.localruns import LocalRun, write_yaml

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")]

ALICE, BOB, MALLORY, TEAM = 60001, 60002, 60003, 60100   # no accounts: a kernel needs none
ENDLESS = "--steps 1000000 --step-time 0.05 --handle-usr2 --save-every 1000000"
KILL_S = 100.0   # 1 to 3 s on a quiet machine; the grace is 15 minutes
SECRET = "hunter2-of-alice"
# The secrets come by stdin: on a command line it would find itself.
SEARCH = """
import glob, os, sys
secrets = sys.stdin.read().encode().split()
paths = glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ")
for folder in sys.argv[1:]:
    paths += [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]
for path in paths:
    try:
        with open(path, "rb") as file:
            text = file.read()
        if any(secret in text for secret in secrets):
            print(path)
    except OSError:
        pass
print("searched")
"""


@dataclass(frozen=True)
class Machine:
    """Alice's folder, with a train.yaml, and a scratch for all, as /tmp is."""

    home: Path
    scratch: Path
    env: dict[str, str]

    def do(self, uid: int, line: str, folder: Path | None = None, said: str = "") -> subprocess.CompletedProcess[str]:
        """A line of bash, as a user types it, and what its stdin says; Alice and Bob are of one group."""
        groups = ["--clear-groups"] if uid == MALLORY else [f"--groups={TEAM}"]
        return subprocess.run(
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", *groups, "bash", "-c", line], cwd=folder or self.home,
            env=self.env, text=True, capture_output=True, timeout=180, input=said)

    def type(self, uid: int, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`safelaunch WORDS`."""
        return self.do(uid, shlex.join([sys.executable, "-m", "safelaunch", *words]), folder)

    def submit(self, *overrides: str) -> LocalRun:
        """Alice's run, once its first steps are made."""
        done = self.type(ALICE, "submit", "train.yaml", "--json", *overrides)
        assert done.returncode == 0, done.stderr
        run = LocalRun(self.home, Path(json.loads(done.stdout)["run_dir"]), self.env)
        run.wait_ranks(2)
        return run


@pytest.fixture
def machine(local_env: dict[str, str]) -> Iterator[Machine]:
    """In a folder that all may pass, which pytest's own are not; what is left of its runs ends with the test."""
    top = Path(tempfile.mkdtemp(prefix="safelaunch-users-"))
    home, scratch = top / "alice", top / "scratch"
    for folder, mode in ((top, 0o755), (home, 0o755), (scratch, 0o1777)):
        folder.mkdir(exist_ok=True)
        folder.chmod(mode)
    write_yaml(home, ENDLESS, nodes=2)
    (top / "site.yaml").touch()
    for path in (home, home / "train.yaml"):
        os.chown(path, ALICE, ALICE)
    yield Machine(home, scratch, {**local_env, "HOME": str(home), "SAFELAUNCH_LOCAL_DIR": str(scratch),
                                  "SAFELAUNCH_SITE_CONFIG": str(top / "site.yaml")})
    while left := processes_of(top):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    shutil.rmtree(top)


def processes_of(folder: Path) -> list[int]:
    """Living ones that name it in their words or their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            text = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            if str(folder).encode() in text and b"\nState:\tZ" not in (path / "status").read_bytes():
                found.append(int(path.name))
    return found


def ends_by_a_stop(machine: Machine, run: LocalRun, uid: int, name: str = "kill") -> None:
    """A user touches the kill switch, and nothing is left."""
    begin_s = time.monotonic()
    done = machine.do(uid, f"touch {run.run_dir}/control/{name}")
    assert done.returncode == 0, done.stderr
    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    assert time.monotonic() - begin_s < KILL_S, run.story()


def test_a_run_that_somebody_has_laid_where_the_next_one_goes_runs_nothing(machine: Machine) -> None:
    """In a scratch that all may write: a script to submit, and an environment for a shell."""
    theirs = machine.scratch / "bloom"
    make_run(theirs, YAML, cluster="local")
    word = f"touch {machine.scratch}/done-by-$(id -u)"
    (theirs / "job.sbatch").write_text(f"#!/bin/bash\n{word}\n")
    (theirs / "submit.env").write_text(f"PROMPT_COMMAND={word}\0")
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, MALLORY, MALLORY)
        path.chmod(0o777)

    submitted = machine.type(ALICE, "submit", "train.yaml", f"run_dir={theirs}")
    assert submitted.returncode == 2 and f"belongs to {MALLORY}" in submitted.stderr, submitted
    for words in (["shell"], ["shell", str(theirs)], ["resume", str(theirs)], ["watch", "--once", str(theirs)]):
        assert machine.type(ALICE, *words, folder=machine.scratch).returncode != 70
    assert not list(machine.scratch.glob("done-by-*"))


def test_a_name_in_tmp_that_is_taken_costs_no_supervisor(machine: Machine) -> None:
    assert machine.do(MALLORY, f"mkdir {machine.scratch}/safelaunch-{ALICE}").returncode == 0
    run = machine.submit()
    assert run.leader()
    said = machine.type(ALICE, "status", str(run.run_dir)).stdout
    assert f"safelaunch-{ALICE}" in said, said
    ends_by_a_stop(machine, run, ALICE)


def test_a_foreign_run_that_names_ones_own_kill_switch_stops_nothing_of_ones_own(machine: Machine) -> None:
    run = machine.submit()
    theirs = machine.scratch / "theirs"
    meta = json.loads((run.run_dir / "run.json").read_text())
    meta["config"]["kill_switch"]["file"] = f"{run.run_dir}/control/kill"
    (machine.scratch / "run.json").write_text(json.dumps(meta))
    machine.do(MALLORY, f"mkdir -p {theirs}/journal {theirs}/control && cp {machine.scratch}/run.json {theirs}/ && "
                        f"chmod -R a+rwX {theirs}")
    machine.type(ALICE, "stop", "--now", str(theirs))
    assert not list((run.run_dir / "control").iterdir())
    step = max(run.losses())
    run.wait_step(step + 3)
    ends_by_a_stop(machine, run, ALICE)


@pytest.mark.parametrize("trick", [
    "ln -s extend extend", "ln -s /root/x extend; ln -s release release", "mkfifo extend; mkdir release",
    "ln -s {precious} orphaned-{job}; touch orphaned-1",
], ids=["a link to itself", "links that may not be followed", "no files", "a word on an orphaned job"])
def test_no_name_of_a_member_disables_the_kill_switch_or_writes_in_the_owners_files(
    trick: str, machine: Machine,
) -> None:
    """And no member takes the owner's stop back, nor can one who is none touch it."""
    run = machine.submit()
    control = run.run_dir / "control"
    for path in (run.run_dir.parent, run.run_dir, control):
        os.chown(path, ALICE, TEAM)
    # As `submit` makes them with kill_switch.group, which must have a name on the machine.
    for path in (run.run_dir.parent, run.run_dir):
        path.chmod(0o750)
    control.chmod(0o3770)
    precious = machine.home / "precious"
    assert machine.do(ALICE, f"echo mine > {precious}").returncode == 0
    state = run.state()
    assert state.job is not None

    laid = machine.do(BOB, f"cd {control} && " + trick.format(precious=precious, job=state.job.id))
    assert laid.returncode == 0, laid.stderr
    assert machine.do(MALLORY, f"touch {control}/kill").returncode != 0
    run.wait_step(max(run.losses()) + 5)
    assert machine.do(ALICE, f"touch {control}/hold").returncode == 0
    for taken in (f"rm -f {control}/hold", f"mv {control}/hold {control}/x"):
        assert machine.do(BOB, taken).returncode != 0
    machine.do(ALICE, f"rm -f {control}/hold")
    ends_by_a_stop(machine, run, BOB, "kill-now")
    assert f"{BOB} touched kill-now" in run.story() and precious.read_text() == "mine\n", run.story()


def test_another_user_of_the_node_reads_no_secret(machine: Machine) -> None:
    """The run's own token, and what env: and setup: say."""
    path = machine.home / "train.yaml"
    path.write_text(path.read_text() + f"env: {{HF_TOKEN: {SECRET}}}\nsetup: export OTHER={SECRET}\n")
    path.chmod(0o600)
    run = machine.submit()
    (control,) = machine.scratch.glob("safelaunch-*/*/control.json")
    token = str(json.loads(control.read_text())["token"])
    found = machine.do(MALLORY, shlex.join(["python3", "-I", "-c", SEARCH, str(machine.home), str(machine.scratch)]),
                       said="\n".join((SECRET, token)))
    assert found.returncode == 0 and found.stdout.split() == ["searched"], found
    ends_by_a_stop(machine, run, ALICE)
