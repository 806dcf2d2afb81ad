"""The node guard by real processes: exit codes, ranks that hide, the leader's words, the fence, and waking up.

A `Leader` in the test is the real control server on loopback; ranks are small programs that write a line a step.
"""

from __future__ import annotations

import ast
import contextlib
import glob
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from safelaunch.guard.io.callers import Guard
from safelaunch.guard.io.control import ControlServer
from safelaunch.guard.io.guardcode import guard_text
from safelaunch.node.guard import kernel
from safelaunch.node.guard.fence import TICK_S
from safelaunch.node.guard.main import PRIVATE, SWITCH_MARGIN_S
from safelaunch.node.guard.processes import is_told_alone, marked, signal_handlers
from safelaunch.node.guard.protocol import STEP_TASKS
from safelaunch.node.guard.switch import KNOWN_S, Fuses
from tests.lease import leased
from tests.patience import Patience
from tests.ports import free_ports

SOURCE = guard_text()
pytestmark = pytest.mark.timed   # leases of a second, and timers of the kernel
TOKEN = "a" * 64
LEASE_S = 1.0
DEADLINE_S = 60.0
PING_S = 0.2

# A rank: writes "<monotonic> <pid>" for each step, after some computing, as a training does; or after a sleep.
RANK = """
import os, signal, sys, time
log, step_s, how = open(sys.argv[1], "a", buffering=1), float(sys.argv[2]), sys.argv[3:]
if "ignore-term" in how:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "usr2" in how:
    signal.signal(signal.SIGUSR2, lambda number, frame: log.write("USR2 %d\\n" % os.getpid()))
log.write("started %d\\n" % os.getpid())
while True:
    end = time.process_time() + step_s
    if "idle" in how:
        time.sleep(step_s)
    while "idle" not in how and time.process_time() < end:
        pass
    if step_s < 0.01:
        time.sleep(0.002)
    log.write("%.6f %d\\n" % (time.monotonic(), os.getpid()))
"""
# Leaves a rank behind as a daemon does: forked twice, in a session of its own, its parent gone once it runs.
DAEMONISE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", sys.argv[1], *sys.argv[2:]])
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[2]) or not os.path.getsize(sys.argv[2]):
    time.sleep(0.01)
"""


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False


def wait_until(is_so: Callable[[], bool], why: str, timeout_s: float = DEADLINE_S) -> None:
    patience = Patience(timeout_s)
    while not is_so():
        assert not patience.is_over(), f"waited {timeout_s} s in vain: {why}"
        time.sleep(0.005)


class Leader:
    """The real control server, served while the test waits."""

    def __init__(self, token: str = TOKEN, port: int = 0) -> None:
        self.selector = selectors.DefaultSelector()
        self.server = ControlServer(self.selector, token, port)

    def serve_until(self, is_so: Callable[[], bool], why: str, timeout_s: float = DEADLINE_S) -> None:
        patience = Patience(timeout_s)
        while not is_so():
            assert not patience.is_over(), f"waited {timeout_s} s in vain: {why}"
            for key, _ in self.selector.select(0.02):
                key.data(time.monotonic())
            self.server.tick(time.monotonic(), PING_S)

    def serve_for(self, seconds_s: float) -> None:
        until_s = time.monotonic() + seconds_s
        self.serve_until(lambda: time.monotonic() >= until_s, "the time to pass", seconds_s + DEADLINE_S)

    def guard(self, task: int = 0) -> Guard:
        """The guard, once it is connected."""
        self.serve_until(lambda: ("n0", task) in self.server.guards, "the guard to connect")
        return self.server.guards["n0", task]

    def tell(self, **message: Any) -> None:
        assert self.server.tell(message, time.monotonic()) > 0

    def close(self) -> None:
        self.server.close()
        self.selector.close()


@dataclass
class Node:
    """A folder, a leader and guards with their ranks; every process carries `mark`."""

    dir: Path
    mark: str
    leaders: list[Leader] = field(default_factory=list)
    guards: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def record(self) -> Path:
        return self.dir / "record.json"

    @property
    def log(self) -> Path:
        return self.dir / "rank.log"

    def put_record(self, state: str, port: int | None = None) -> None:
        temporary = self.dir / "record.tmp"
        endpoint = None if port is None else ["127.0.0.1", port]
        temporary.write_text(json.dumps({"v": 1, "attempt": 1, "state": state, "endpoint": endpoint}) + "\n")
        temporary.replace(self.record)

    def lead(self, token: str = TOKEN, port: int = 0) -> Leader:
        self.leaders.append(Leader(token, port))
        return self.leaders[-1]

    def guarded(self, argv: Sequence[str], leader: Leader | None = None, *, python: str = sys.executable,
                source: str = SOURCE, port: int | None = None, within: Sequence[str] = (),
                **env: str) -> subprocess.Popen[bytes]:
        """A guard around `argv`, in a session of its own as a task of a step is; `within`: what starts it."""
        if port is None:
            port = leader.server.port if leader is not None else free_ports(1)[0]
        self.guards.append(subprocess.Popen(
            [*within, python, "-I", "-S", "-c", source, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, cwd="/",
            env={**os.environ, "SAFELAUNCH_ATTEMPT": "1", "SAFELAUNCH_NODE": "n0", "SLURM_PROCID": "0",
                 "SAFELAUNCH_CONTROL": f"127.0.0.1:{port}", "SAFELAUNCH_TOKEN": TOKEN, "SAFELAUNCH_GUARD": source,
                 "SAFELAUNCH_LEASE_S": str(LEASE_S), "SAFELAUNCH_RECORD": str(self.record),
                 "SAFELAUNCH_MARK": self.mark, **leased(), **env}))
        return self.guards[-1]

    def rank(self, *how: str, step_s: float = 0.0) -> list[str]:
        """A rank's command line."""
        return [sys.executable, "-I", "-S", "-c", RANK, str(self.log), str(step_s), *how]

    def lines(self) -> list[list[str]]:
        with contextlib.suppress(FileNotFoundError):
            return [line.split() for line in self.log.read_text().split("\n")[:-1]]
        return []

    def rank_pid(self) -> int:
        """The first rank's pid, once it runs."""
        wait_until(lambda: bool(self.lines()), "the rank to start")
        return int(self.lines()[0][1])

    def clean(self) -> None:
        for leader in self.leaders:
            leader.close()
        for _ in range(20):
            left = marked(self.mark, "")
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.05)
        for process in self.guards:
            process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, f"test.{uuid.uuid4().hex}")
    made.put_record("live")
    yield made
    made.clean()


# --- the exit code is the launcher's own --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -KILL $$"], -signal.SIGKILL),
        (["sh", "-c", "kill -TERM $$"], -signal.SIGTERM),
        (["sh", "-c", "exit 255"], 255),
        (["/no/such/program"], 127),
    ],
    ids=["success", "exit 3", "killed by KILL", "killed by TERM", "exit 255", "no such program"],
)
@pytest.mark.parametrize("is_led", [True, False], ids=["with a leader", "with nobody"])
def test_the_exit_code_is_the_launchers_own(node: Node, argv: list[str], expected: int, is_led: bool) -> None:
    leader = node.lead() if is_led else None
    process = node.guarded(argv, leader)
    if leader is None:
        assert process.wait(DEADLINE_S) == expected
        return
    leader.serve_until(lambda: process.poll() is not None, "the guard to end")
    assert process.returncode == expected


def test_a_scripts_own_shell_that_dies_of_a_signal_gives_its_number(node: Node) -> None:
    # By the same signal, bash would write "Killed" into the script's output.
    assert node.guarded(["sh", "-c", "kill -KILL $$"], SAFELAUNCH_LAUNCHER="script").wait(DEADLINE_S) == 137


@pytest.mark.parametrize(
    ("make", "argv0", "code", "said"),
    [
        ("", "nosuch", 2, "nosuch: No such file or directory"),
        ("", "./nosuch", 2, "{dir}/./nosuch: No such file or directory"),
        ("touch there", "./there", 13, "{dir}/./there: Permission denied"),
        ("mkdir -p there", "{dir}/there", 13, "{dir}/there: Permission denied"),
        ("echo true >there; chmod +x there", "there", 8, "{dir}/there: Exec format error"),
        ("echo '#! /no/sh' >there; chmod +x there", "there", 2, "bad interpreter(/no/sh): No such file or directory"),
    ],
    ids=["no program", "no path", "a file", "a folder", "no shebang", "no interpreter"],
)
def test_a_program_of_a_scripts_srun_that_cannot_start_ends_as_under_slurmstepd(
    node: Node, make: str, argv0: str, code: int, said: str
) -> None:
    subprocess.run(["bash", "-c", make], cwd=node.dir, check=True)
    process = node.guarded([argv0.format(dir=node.dir)], within=["env", "-C", str(node.dir)], SAFELAUNCH_STEP="yes",
                           SLURM_STEP_ID="0", SLURMD_NODENAME="n0", PATH=f"{node.dir}:{os.environ['PATH']}")
    _, words = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, words.decode()) == (
        code, f"slurmstepd-n0: error: execve(): {said.format(dir=node.dir)}\n")


def test_a_task_of_a_scripts_srun_is_called_by_the_path_that_slurmstepd_finds(node: Node) -> None:
    argv = ["bash", "-c", "echo $0"]
    out, _ = node.guarded(argv, SAFELAUNCH_STEP="yes", SLURM_STEP_ID="0").communicate(timeout=DEADLINE_S)
    assert out.decode().strip() == shutil.which("bash")


def test_the_leader_hears_how_the_launcher_ended_and_that_nothing_is_left(node: Node) -> None:
    leader = node.lead()
    node.guarded(["sh", "-c", "sleep 0.3; kill -SEGV $$"], leader)
    guard = leader.guard()
    leader.serve_until(lambda: guard.gone, "the last word")
    assert (guard.code, guard.signal) == (128 + signal.SIGSEGV, signal.SIGSEGV)


def test_a_task_of_a_scripts_srun_tells_how_many_tasks_its_step_has(node: Node) -> None:
    leader = node.lead()
    node.guarded(["true"], leader, SAFELAUNCH_STEP="yes", SLURM_STEP_ID="3", SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="2")
    guard = leader.guard(4 * STEP_TASKS + 1)
    assert (guard.step, guard.tasks) == (4, 2)


def test_a_guard_finds_what_the_kernel_said_of_hardware_since_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = time.monotonic()
    said = [(now_s - 900, b"NVRM: Xid (PCI:0000:01:00): 31, long ago"), (now_s - 5, b"usb 1-1: new device"),
            (now_s - 4, b"NVRM: Xid (PCI:0000:90:00): 79, GPU has fallen off the bus."),
            (now_s - 3, b"\xff EDAC MC0: 1 CE"), (now_s - 2, b"Buffer I/O error on dev loop3, logical block 4"),
            (now_s - 2, b"oom-kill:constraint=NONE,task_memcg=/slurm/uid_1/job_12/step_0,task=python,pid=7"),
            (now_s - 1, b"oom-kill:constraint=NONE,task_memcg=/slurm/uid_1/job_47/step_0,task=python,pid=8")]
    (tmp_path / "kmsg").write_bytes(
        b"".join(b"6,1,%d,-;%s\n DEVICE=+pci:NVRM\n" % (at_s * 1e6, text) for at_s, text in said))
    monkeypatch.setattr(kernel, "KMSG", str(tmp_path / "kmsg"))
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    found = kernel.kernel_words(now_s - 60)
    assert [text for _, text in found] == [said[2][1].decode(), "\ufffd EDAC MC0: 1 CE", said[5][1].decode()]
    assert abs(found[0][0] - (time.time() - 4)) < 2


@pytest.mark.parametrize(("text", "is_told"), [
    ("mlx5_core 0000:86:00.0: failed to disable loopback of vport 0, err -5", True),
    ("NVRM: Xid (PCI:0000:18:00): 74, NVLink 3: fatal error in loopback mode", True),
    ("nvidia-nvlink: link 2 of loop detect: training failed", True),
    ("Buffer I/O error on dev loop3, logical block 4", False), ("I/O error, dev loop3p1, sector 8 op 0x0", False),
    ("EXT4-fs error (device loop12): ext4_find_entry: inode #2", False), ("XFS (loop0): metadata I/O error", False),
])
def test_only_disks_that_are_files_are_left_out_of_what_the_kernel_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_told: bool,
) -> None:
    (tmp_path / "kmsg").write_text(f"3,1,{int(time.monotonic() * 1e6)},-;{text}\n")
    monkeypatch.setattr(kernel, "KMSG", str(tmp_path / "kmsg"))
    assert [told for _, told in kernel.kernel_words(0.0)] == ([text] if is_told else [])


@pytest.mark.parametrize("text", [b"", b";", b"NVRM", b"a,b,c;Xid", b"6,1,x,-;Xid\n", None], ids=str)
def test_a_kernel_that_says_odd_things_holds_up_no_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes | None,
) -> None:
    if text is not None:
        (tmp_path / "kmsg").write_bytes(text)
    monkeypatch.setattr(kernel, "KMSG", str(tmp_path / "kmsg"))
    assert kernel.kernel_words(0.0) == []


def test_what_the_launcher_says_comes_through(node: Node) -> None:
    process = node.guarded(["sh", "-c", "echo out; echo err >&2"])
    assert process.communicate(timeout=DEADLINE_S) == (b"out\n", b"err\n")


def test_ranks_see_their_environment_without_the_guards_secrets(node: Node) -> None:
    out, _ = node.guarded(["env"], HELLO="world", SAFELAUNCH_GUARD_CODE="none").communicate(timeout=DEADLINE_S)
    names = {line.partition(b"=")[0].decode() for line in out.splitlines()}
    assert not names & set(PRIVATE)
    assert {"HELLO", "SAFELAUNCH_ATTEMPT", "SAFELAUNCH_MARK", "PATH"} <= names


def test_ranks_have_the_signals_that_a_shell_would_give_them(node: Node) -> None:
    out, _ = node.guarded(["cat", "/proc/self/status"]).communicate(timeout=DEADLINE_S)
    masks = {key: value.strip() for key, _, value in (line.partition(b":") for line in out.splitlines())}
    assert masks[b"SigCgt"].strip(b"0") == b""
    assert masks[b"SigBlk"].strip(b"0") == b""
    assert not int(masks[b"SigIgn"], 16) & (1 << (signal.SIGPIPE - 1))


def test_ranks_do_not_ignore_what_the_shell_before_the_guard_ignored(node: Node) -> None:
    ignored = ["sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh"]
    out, _ = node.guarded(["grep", "SigIgn", "/proc/self/status"], within=ignored).communicate(timeout=DEADLINE_S)
    assert not int(out.split()[1], 16) & (1 << (signal.SIGINT - 1) | 1 << (signal.SIGQUIT - 1))


@pytest.mark.parametrize(
    "broken",
    [{"SAFELAUNCH_ATTEMPT": "x"}, {"SAFELAUNCH_CONTROL": "nowhere"}, {"SAFELAUNCH_LEASE_S": "soon"}],
    ids=["no attempt", "no address", "no lease"],
)
def test_a_guard_that_cannot_guard_trains_without(node: Node, broken: dict[str, str]) -> None:
    assert node.guarded(["sh", "-c", "exit 3"], None, **broken).wait(DEADLINE_S) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", [["ctypes"], ["ctypes", "_ctypes"]], ids=["not laid out", "built without libffi"])
def test_a_python_without_ctypes_trains_all_the_same(node: Node, missing: list[str]) -> None:
    future = "from __future__ import annotations\n"
    lacks = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in missing)
    source = SOURCE.replace(future, future + lacks, 1)
    assert source != SOURCE
    process = node.guarded(["sh", "-c", "sleep 0.2; exit 3"], source=source)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3
    assert said == b""


def test_a_bug_in_the_guard_ends_no_training(node: Node) -> None:
    source = SOURCE.replace("    def _sleep(self) -> None:\n", "    def _sleep(self) -> None:\n        1 / 0\n")
    assert source != SOURCE
    process = node.guarded(["sh", "-c", "sleep 0.2; exit 3"], source=source)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3
    assert b"node guard stopped guarding: ZeroDivisionError" in said


# --- ranks that hide, and the leader's words ----------------------------------------------------------------------


def test_a_daemonised_rank_is_found_and_ended(node: Node) -> None:
    leader = node.lead()
    hide = [sys.executable, "-I", "-S", "-c", DAEMONISE, RANK, str(node.log), "0"]
    process = node.guarded(hide, leader)
    guard = leader.guard()
    leader.serve_until(lambda: guard.code is not None, "the launcher's end")
    assert guard.code == 0
    leader.serve_until(lambda: guard.gone, "the daemon's end")
    assert not is_alive(node.rank_pid())
    assert process.wait(DEADLINE_S) == 0


def test_a_daemonised_rank_that_ignores_term_is_killed(node: Node) -> None:
    process = node.guarded([sys.executable, "-I", "-S", "-c", DAEMONISE, RANK, str(node.log), "0", "ignore-term"])
    assert process.wait(DEADLINE_S) == 0
    assert not is_alive(node.rank_pid())


def test_end_means_term_at_once(node: Node) -> None:
    leader = node.lead()
    process = node.guarded(node.rank(), leader)
    pid, guard = node.rank_pid(), leader.guard()
    started_s = time.monotonic()
    leader.tell(do="end", grace_s=20.0)
    leader.serve_until(lambda: guard.gone, "the rank's end")
    assert time.monotonic() - started_s < 10.0, "half of the grace"
    assert process.wait(DEADLINE_S) == -signal.SIGTERM
    assert not is_alive(pid)


def test_a_rank_that_ignores_term_is_killed_after_the_grace_and_not_before(node: Node) -> None:
    leader = node.lead()
    process = node.guarded(node.rank("ignore-term"), leader)
    pid, guard = node.rank_pid(), leader.guard()
    started_s = time.monotonic()
    leader.tell(do="end", grace_s=1.0)
    leader.serve_for(0.7)
    assert is_alive(pid)
    leader.serve_until(lambda: guard.gone, "the rank's end")
    assert 1.0 <= time.monotonic() - started_s < 10.0
    assert process.wait(DEADLINE_S) == -signal.SIGKILL


def test_a_second_end_with_a_shorter_grace_counts(node: Node) -> None:
    leader = node.lead()
    node.guarded(node.rank("ignore-term"), leader)
    node.rank_pid()
    guard = leader.guard()
    leader.tell(do="end", grace_s=60.0)
    leader.tell(do="end", grace_s=0.0)
    leader.serve_until(lambda: guard.gone, "the rank's end", DEADLINE_S)


def test_a_signal_reaches_only_processes_that_handle_it_and_no_launcher(node: Node, tmp_path: Path) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text("import signal, subprocess, sys\nsignal.signal(signal.SIGUSR2, lambda *_: sys.exit(9))\n"
                        "sys.exit(subprocess.call(sys.argv[1:]))\n")
    deaf = node.rank().copy()
    deaf[5] = str(tmp_path / "deaf.log")
    script = 'trap "exit 8" USR2; "$@" & python3 -I -S "$0" "${DEAF[@]}" & wait'
    leader = node.lead()
    launcher = [sys.executable, "-I", "-S", str(torchrun), "bash", "-c",
                f"DEAF=({' '.join(map(_quoted, deaf))}); {script}", str(torchrun), *node.rank("usr2")]
    node.guarded(launcher, leader)
    pid = node.rank_pid()
    wait_until(lambda: (tmp_path / "deaf.log").exists() and (tmp_path / "deaf.log").read_text().count("\n") > 0,
               "the rank without a handler")
    deaf_pid = int((tmp_path / "deaf.log").read_text().split()[1])
    guard = leader.guard()
    leader.tell(do="signal", signal=int(signal.SIGUSR2))
    leader.serve_until(lambda: ["USR2", str(pid)] in node.lines(), "the signal to arrive")
    leader.serve_until(lambda: bool(leader.server.signalled), "the names of who took it")
    assert [name.rpartition("[")[2] for name in leader.server.signalled] == [f"{pid}]"]
    leader.tell(do="signal", signal=int(signal.SIGUSR2))   # whoever has not heard all answers asks again
    leader.serve_until(lambda: len(leader.server.signalled) > 1, "the same name again")
    leader.serve_for(0.3)
    assert node.lines().count(["USR2", str(pid)]) == 1 and len(set(leader.server.signalled)) == 1
    assert guard.code is None, "the launcher and bash live on"
    assert is_alive(deaf_pid), "a process without a handler would have died of it"


@pytest.mark.parametrize(("is_of_step", "wanted"), [("", ["trapped"]), ("yes", [])], ids=["the script", "its rank"])
def test_a_script_that_asks_for_it_gets_the_signal_in_its_own_shell_and_its_ranks_do_not(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_of_step: str, wanted: list[str]
) -> None:
    monkeypatch.setenv("SAFELAUNCH_SIGNAL_TO", "shell")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    if is_of_step:
        monkeypatch.setenv("SAFELAUNCH_STEP", is_of_step)
    said, leader = tmp_path / "said", node.lead()
    script = f'trap "echo trapped >>{said}; exit 7" USR2; "$@" & until wait; do :; done'
    process = node.guarded(["bash", "-c", script, "job", *node.rank("usr2")], leader)
    pid = node.rank_pid()
    leader.serve_until(lambda: bool(leader.server.guards), "the guard to connect")

    leader.tell(do="signal", signal=int(signal.SIGUSR2))

    leader.serve_until(lambda: leader.server.signal_answers > 0, "the answer")
    assert [name.partition("[")[0] for name in leader.server.signalled] == ["n0: bash"] * len(wanted)
    if wanted:
        leader.serve_until(lambda: process.poll() is not None, "the script's end")
        assert process.returncode == 7 and said.read_text().split() == wanted
    assert ["USR2", str(pid)] not in node.lines()


def test_a_shell_that_is_itself_the_task_of_a_scripts_srun_gets_the_signal_that_it_traps(node: Node) -> None:
    leader = node.lead()
    process = node.guarded(["bash", "-c", f'trap "exit 7" USR1; {_quoted_words(node.rank())} & until wait; do :; done'],
                           leader, SAFELAUNCH_STEP="yes", SLURM_STEP_ID="0")
    node.rank_pid()
    leader.guard(STEP_TASKS)
    leader.tell(do="signal", signal=int(signal.SIGUSR1))
    leader.serve_until(lambda: process.poll() is not None, "the task's end")
    assert process.returncode == 7


def _quoted_words(words: Sequence[str]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


@pytest.mark.root
def test_a_user_without_any_groups_is_signalled_too(node: Node) -> None:
    node.guards.append(subprocess.Popen(node.rank("usr2"), extra_groups=[], stdout=subprocess.DEVNULL,
                                        env={**os.environ, "SAFELAUNCH_MARK": node.mark}))
    pid = node.rank_pid()
    reached = signal_handlers([pid], signal.SIGUSR2)
    assert {pid: name.rpartition("[")[2] for pid, name in reached.items()} == {pid: f"{pid}]"}


def test_a_launcher_that_ends_at_once_is_still_reported(node: Node) -> None:
    leader = node.lead()
    node.guarded(["sh", "-c", "exit 3"], leader)
    guard = leader.guard()
    leader.serve_until(lambda: guard.gone, "the last word")
    assert guard.code == 3


LATE = SOURCE.replace("\nLET_START_S = 0.05 ", "\nLET_START_S = 3600.0 ")


def test_the_launcher_is_let_start_before_the_guard_goes_on(node: Node) -> None:
    assert LATE != SOURCE
    node.put_record("live")   # the look at it has ended by then, and the end of its child is no reason to go on
    leader = node.lead()
    node.guarded(node.rank(), leader, source=LATE)
    node.rank_pid()
    leader.serve_for(1.0)
    assert leader.server.guards == {}


def test_a_launcher_that_ends_while_it_is_let_start_is_reported_at_once(node: Node) -> None:
    leader = node.lead()
    process = node.guarded(["sh", "-c", "exit 3"], leader, source=LATE)
    guard = leader.guard()
    leader.serve_until(lambda: guard.gone, "the last word")
    assert guard.code == process.wait(DEADLINE_S) == 3


def test_signals_of_slurm_do_not_end_the_guard_before_its_ranks(node: Node) -> None:
    process = node.guarded(node.rank("ignore-term"))
    pid = node.rank_pid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGCONT):
        process.send_signal(number)
    time.sleep(0.3)
    assert process.poll() is None
    os.kill(pid, signal.SIGKILL)
    assert process.wait(DEADLINE_S) == -signal.SIGKILL


# --- who is believed ----------------------------------------------------------------------------------------------


def test_a_leader_with_another_token_gets_no_word_through(node: Node) -> None:
    stranger = node.lead(token="b" * 64)
    process = node.guarded(node.rank(), stranger)
    pid = node.rank_pid()
    stranger.serve_for(1.5)
    assert stranger.server.guards == {}
    assert is_alive(pid)
    assert process.poll() is None


@pytest.mark.parametrize(
    "words",
    [
        b'{"do":"end","grace_s":0}\n',
        b'{"nonce":"x"}\n{"mac":"\xc3\xbc"}\n',
        b'{"nonce":"\\ud800"}\n{"do":"end","grace_s":0}\n',
        b'{"nonce":"x"}\n{"nonce":"y"}\n{"do":"end","grace_s":0}\n',
        b'{"mac":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}\n{"do":"end","grace_s":0}\n',
        b"[" * 60_000 + b"\n",
        b"x" * 200_000,
        b"\0\n\n\n",
    ],
    ids=["an order without a greeting", "umlauts as proof", "half a surrogate as nonce", "two nonces",
         "a proof without a nonce", "60,000 brackets", "no end of a line", "zero bytes"],
)
def test_who_takes_the_leaders_port_can_order_nothing(node: Node, words: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        process = node.guarded(node.rank(), port=impostor.getsockname()[1])
        pid = node.rank_pid()
        impostor.settimeout(DEADLINE_S)
        caller, _ = impostor.accept()
        with caller, contextlib.suppress(OSError):
            caller.sendall(words)
            caller.settimeout(0.3)
            while caller.recv(65536):
                pass
    assert is_alive(pid)
    assert process.poll() is None
    os.kill(pid, signal.SIGTERM)
    assert process.wait(DEADLINE_S) == -signal.SIGTERM
    assert process.stderr is not None
    assert b"stopped guarding" not in process.stderr.read()


def test_a_leader_that_is_born_again_on_the_same_port_hears_the_exit_again(node: Node) -> None:
    first = node.lead()
    hide = [sys.executable, "-I", "-S", "-c", DAEMONISE, RANK, str(node.log), "0", "ignore-term"]
    source = SOURCE.replace("LEFTOVER_GRACE_S = 2.0", "LEFTOVER_GRACE_S = 4.0")   # time for a birth
    node.guarded(hide, first, source=source)
    guard = first.guard()
    first.serve_until(lambda: guard.code is not None, "the launcher's end")
    first.close()
    node.leaders.remove(first)
    second = node.lead(port=first.server.port)
    assert second.server.port == first.server.port
    again = second.guard()
    second.serve_until(lambda: again.code is not None, "the exit, told again")
    second.serve_until(lambda: again.gone, "the last word")
    assert (guard.code, again.code) == (0, 0)


def test_a_leader_that_is_born_again_elsewhere_is_found_by_the_record(node: Node) -> None:
    first = node.lead()
    node.guarded(node.rank(), first)
    first.guard()
    first.close()
    node.leaders.remove(first)
    second = node.lead()
    node.put_record("live", second.server.port)
    assert second.guard().code is None


# --- the fence ----------------------------------------------------------------------------------------------------


def lose_the_leader(node: Node) -> int:
    """Start a rank under a leader and let the leader go; the rank's pid."""
    leader = node.lead()
    node.guarded(node.rank(), leader)
    leader.guard()
    pid = node.rank_pid()
    leader.close()
    node.leaders.remove(leader)
    return pid


def test_without_a_leader_the_training_goes_on_while_its_record_is_live(node: Node) -> None:
    pid = lose_the_leader(node)
    time.sleep(LEASE_S + 1.5)
    assert is_alive(pid)


def test_without_a_leader_the_ranks_end_soon_after_their_record_has_moved_on(node: Node) -> None:
    pid = lose_the_leader(node)
    node.put_record("ended")
    started_s = time.monotonic()
    wait_until(lambda: not is_alive(pid), "the ranks' end")
    assert LEASE_S / 2 < time.monotonic() - started_s < LEASE_S + 10.0
    process = node.guards[0]
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    assert process.stderr is not None
    assert b"heard nobody for" in process.stderr.read()


def test_words_that_may_be_old_prolong_no_lease_unless_a_question_is_answered(node: Node) -> None:
    """They had waited for a cable, or for this node to wake. Here nobody serves, and pings come all the same."""
    leader = node.lead()
    node.guarded(node.rank(), leader)
    leader.guard()
    pid = node.rank_pid()
    time.sleep(LEASE_S)
    node.put_record("ended")

    def is_over() -> bool:
        leader.server.tell({"do": "ping"}, time.monotonic())
        return not is_alive(pid)

    wait_until(is_over, "the ranks' end")


@pytest.mark.parametrize("how", ["folder", "hanging", "empty", "garbage"])
def test_without_a_leader_a_record_that_cannot_be_read_ends_the_ranks(node: Node, how: str) -> None:
    pid = lose_the_leader(node)
    make_unreadable(node, how)
    wait_until(lambda: not is_alive(pid), "the ranks' end", DEADLINE_S)


def make_unreadable(node: Node, how: str) -> None:
    node.record.unlink()
    if how == "folder":
        node.record.mkdir()
    elif how == "hanging":
        os.mkfifo(node.record)   # as on a frozen folder: open() does not come back
    else:
        node.record.write_text({"empty": "", "garbage": '{"state": ["live"], "endpoint": 7}\n'}[how])


def test_without_a_leader_a_record_that_is_missing_ends_nothing(node: Node) -> None:
    pid = lose_the_leader(node)
    node.record.unlink()
    time.sleep(LEASE_S + 1.5)
    assert is_alive(pid)


@pytest.mark.parametrize("how", ["folder", "hanging"])
def test_a_guard_that_never_met_a_leader_ends_nothing_for_a_record_it_cannot_read(node: Node, how: str) -> None:
    make_unreadable(node, how)
    process = node.guarded(node.rank())
    pid = node.rank_pid()
    time.sleep(LEASE_S + 1.5)
    assert is_alive(pid)
    assert len(children_of(process.pid)) <= 2, "the rank, and at most one look at the record"


def test_a_guard_that_never_met_a_leader_still_obeys_a_record_that_has_moved_on(node: Node) -> None:
    node.guarded(node.rank())
    pid = node.rank_pid()
    node.put_record("ended")
    wait_until(lambda: not is_alive(pid), "the ranks' end", DEADLINE_S)


def test_a_guard_whose_attempt_is_over_before_it_begins_starts_nothing(node: Node, tmp_path: Path) -> None:
    """A node that stood still between srun and its tasks wakes up when another attempt may run (simulated)."""
    node.put_record("ended")
    process = node.guarded(["touch", str(tmp_path / "started")])
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 75
    assert b"attempt 1 is over already: nothing is started" in said
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("how", ["folder", "hanging", "ended"])
def test_with_a_live_connection_the_record_is_not_even_looked_at(node: Node, how: str) -> None:
    lease_s = 4.0   # a test that waits for a processor does not ping
    leader = node.lead()
    node.guarded(node.rank(), leader, SAFELAUNCH_LEASE_S=str(lease_s))
    pid = node.rank_pid()
    leader.guard()
    if how == "ended":
        node.put_record("ended")
    else:
        make_unreadable(node, how)
    leader.serve_for(1.5 * lease_s)
    assert is_alive(pid)


def test_a_look_that_hangs_holds_no_output_open(node: Node) -> None:
    """A step whose output stays open does not end: after the ranks' end it would wait for the folder's thaw."""
    make_unreadable(node, "hanging")
    unkillable = SOURCE.replace("                os.kill(self.pid, signal.SIGKILL)\n", "                pass\n")
    armed = "        self.switch.make()\n"
    assert armed in unkillable
    process = node.guarded(["sleep", str(LEASE_S + 0.5)], source=unkillable.replace(armed, ""))
    process.communicate(timeout=LEASE_S + 10.0)
    assert process.returncode == 0
    assert marked(node.mark, ""), "it hangs, in silence"


def test_looks_that_hang_are_no_ranks_and_hold_up_no_end(node: Node) -> None:
    make_unreadable(node, "hanging")
    unkillable = SOURCE.replace("                os.kill(self.pid, signal.SIGKILL)\n", "                pass\n")
    process = node.guarded(["sleep", str(LEASE_S + 3.0)], source=unkillable)   # a KILL does nothing in D state
    assert process.wait(DEADLINE_S) == 0


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# --- a job that nobody leads any more -----------------------------------------------------------------------------


ORPHANED = SOURCE.replace("ORPHAN_S = 150.0 ", "ORPHAN_S = 2.0 ").replace("ORPHAN_READS = 20 ", "ORPHAN_READS = 2 ")


@pytest.fixture
def orphan(node: Node, tmp_path: Path) -> Callable[..., Path]:
    """A guard whose leader has gone, in a run folder with a pulse; returns where a fake scancel notes its words."""
    assert ORPHANED.count("= 2.0 ") > SOURCE.count("= 2.0 ")
    record = tmp_path / "attempts" / "0001" / "record.json"
    record.parent.mkdir(parents=True)
    (tmp_path / "control").mkdir()
    (tmp_path / "bin").mkdir()
    called = tmp_path / "scancelled"
    for name in ("scontrol", "scancel"):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho "{name} $@" >> {called}\n')
        (tmp_path / "bin" / name).chmod(0o755)

    def start(state: str = "live", is_silent: bool = False, squeue: str = "echo RUNNING", **env: str) -> Path:
        (tmp_path / "bin" / "squeue").write_text(f"#!/bin/sh\ntouch {tmp_path}/asked; {squeue}\n")
        (tmp_path / "bin" / "squeue").chmod(0o755)
        record.write_text(json.dumps({"v": 1, "attempt": 1, "state": state, "endpoint": None}) + "\n")
        put_pulse(tmp_path, 7)
        leader = node.lead()
        words = {"SAFELAUNCH_RECORD": str(record), "SLURM_JOB_ID": "4711", "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        node.guarded(node.rank("idle", step_s=0.05), leader, python=sys.executable, source=ORPHANED,
                     port=leader.server.port, **{**words, **env})
        leader.guard()
        if not is_silent:
            leader.close()
            node.leaders.remove(leader)
        return called

    return start


def put_pulse(run_dir: Path, count: int, successor: str | None = None) -> None:
    (run_dir / "pulse.tmp").write_text(json.dumps({"count": count, "successor": successor}))
    (run_dir / "pulse.tmp").replace(run_dir / "pulse.json")


def test_a_job_without_a_living_supervisor_is_cancelled_with_a_word_that_it_was_no_person(
    orphan: Callable[..., Path], tmp_path: Path
) -> None:
    called = orphan()
    wait_until(lambda: called.exists() and bool(called.read_text()), "the cancel", DEADLINE_S)
    assert called.read_text() == "scancel 4711\n"
    assert (tmp_path / "control" / "orphaned-4711").read_text().startswith("n0 ")


def test_the_word_on_an_orphaned_job_is_written_through_no_link(orphan: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "control").mkdir(exist_ok=True)
    (tmp_path / "control" / "orphaned-4711").symlink_to(tmp_path / "precious")
    called = orphan()
    wait_until(lambda: called.exists() and bool(called.read_text()), "the cancel", DEADLINE_S)
    assert (tmp_path / "precious").read_text() == "kept"
    assert not (tmp_path / "control" / "orphaned-4711").is_symlink()


def test_the_job_behind_an_orphaned_one_no_longer_waits_for_silent_nodes(
    orphan: Callable[..., Path], tmp_path: Path
) -> None:
    called = orphan()
    put_pulse(tmp_path, 7, successor="4712")
    wait_until(lambda: called.exists() and "scancel" in called.read_text(), "the cancel", DEADLINE_S)
    assert called.read_text().splitlines() == ["scontrol update JobId=4712 Dependency=singleton", "scancel 4711"]


@pytest.mark.parametrize("squeue", ["echo COMPLETING", "echo 'squeue: error: no contact' >&2; exit 1", "true"],
                         ids=["a person cancels it", "no answer", "an empty answer"])
def test_a_job_that_another_is_ending_already_or_that_slurm_is_silent_about_is_left_alone(
    orphan: Callable[..., Path], tmp_path: Path, squeue: str
) -> None:
    called = orphan(squeue=squeue)
    wait_until((tmp_path / "asked").exists, "the question", DEADLINE_S)
    time.sleep(0.5)
    assert not called.exists() and not (tmp_path / "control" / "orphaned-4711").exists()


def test_a_pulse_that_moves_keeps_the_job(orphan: Callable[..., Path], tmp_path: Path) -> None:
    called = orphan()
    for count in range(8, 18):
        put_pulse(tmp_path, count)
        time.sleep(0.6)
    assert not called.exists()


@pytest.mark.parametrize("env", [{"SLURM_LOCALID": "1"}, {"SAFELAUNCH_LOCAL": "1"}, {"SLURM_NODEID": "3"},
                                 {"SAFELAUNCH_KEEPS_JOB": "yes"}],
                         ids=["another task of the node", "no Slurm", "a node whose turn comes later", "a shell's job"])
def test_only_the_first_task_of_the_first_node_cancels_an_orphaned_job(
    orphan: Callable[..., Path], env: dict[str, str]
) -> None:
    called = orphan(**env)
    time.sleep(6.0)
    assert not called.exists()


# --- last words that nobody hears ----------------------------------------------------------------------------------


@pytest.fixture
def unheard(orphan: Callable[..., Path], node: Node) -> Callable[..., Leader]:
    """The rank of a guard ends while its leader's host is silent, as one without power; returns that leader."""
    def start(**env: str) -> Leader:
        orphan(is_silent=True, **env)
        time.sleep(LEASE_S / 2 + 0.5)
        os.kill(node.rank_pid(), signal.SIGKILL)
        return node.leaders[-1]

    return start


def test_last_words_that_nobody_hears_wait_for_somebody_who_does(unheard: Callable[..., Leader], node: Node) -> None:
    leader = unheard()
    guard = leader.server.guards["n0", 0]
    time.sleep(1.0)
    assert node.guards[0].poll() is None
    leader.serve_until(lambda: guard.gone, "the last word")
    leader.serve_until(lambda: node.guards[0].poll() is not None, "the guard's end")
    assert (guard.code, node.guards[0].returncode) == (128 + signal.SIGKILL, -signal.SIGKILL)


def test_an_orphaned_job_is_cancelled_although_its_ranks_have_ended(
    unheard: Callable[..., Leader], node: Node, tmp_path: Path
) -> None:
    unheard()
    called = tmp_path / "scancelled"
    wait_until(lambda: called.exists() and bool(called.read_text()), "the cancel", DEADLINE_S)
    assert called.read_text() == "scancel 4711\n"
    assert node.guards[0].poll() is None
    node.guards[0].send_signal(signal.SIGTERM)   # as Slurm does then
    assert node.guards[0].wait(DEADLINE_S) == -signal.SIGKILL


def test_last_words_wait_no_longer_once_somebody_leads(
    unheard: Callable[..., Leader], node: Node, tmp_path: Path
) -> None:
    unheard(SLURM_NODEID="3")   # whose turn to end an orphaned job comes later
    time.sleep(3.0)   # so that the guard has read the pulse before
    assert node.guards[0].poll() is None
    put_pulse(tmp_path, 8)
    assert node.guards[0].wait(DEADLINE_S) == -signal.SIGKILL
    assert not (tmp_path / "scancelled").exists()


@pytest.mark.parametrize("env", [{"SLURM_LOCALID": "1"}, {"SAFELAUNCH_LOCAL": "1"}],
                         ids=["another task of the node", "no Slurm"])
def test_guards_that_end_no_job_wait_for_nobody(
    unheard: Callable[..., Leader], node: Node, env: dict[str, str]
) -> None:
    unheard(**env)
    assert node.guards[0].wait(DEADLINE_S) == -signal.SIGKILL


def test_guard_whose_leader_has_hung_up_waits_for_nobody(orphan: Callable[..., Path], node: Node) -> None:
    orphan()   # its host lives, and the shell there waits for srun
    time.sleep(LEASE_S / 2 + 0.5)
    os.kill(node.rank_pid(), signal.SIGKILL)
    assert node.guards[0].wait(DEADLINE_S) == -signal.SIGKILL


# --- a node that was stopped and wakes up -------------------------------------------------------------------------


SWITCHED_S = LEASE_S + SWITCH_MARGIN_S


def stop_and_wake(node: Node, leader: Leader, state: str) -> tuple[int, float]:
    """Stop guard and ranks for longer than the lease, put the record, wake them; (rank's pid, time of waking)."""
    process = node.guarded(node.rank(step_s=0.02), leader)
    pid = node.rank_pid()
    leader.guard()
    stopped_s = time.monotonic()
    os.killpg(process.pid, signal.SIGSTOP)
    leader.serve_for(LEASE_S + 0.5)
    node.put_record(state)
    woken_s = time.monotonic()
    os.killpg(process.pid, signal.SIGCONT)
    if woken_s - stopped_s > SWITCHED_S - 0.5:
        pytest.skip("this machine stood still meanwhile: the kernel's switch has ended the ranks")
    return pid, woken_s


@pytest.mark.parametrize("is_hung_up_on", [True, False], ids=["the leader has hung up", "the leader still pings"])
def test_ranks_that_wake_up_after_their_successors_started_are_gone_before_they_get_far(
    node: Node, is_hung_up_on: bool, record_property: Callable[[str, object], None],
) -> None:
    leader = node.lead()
    pid, woken_s = stop_and_wake(node, leader, "ended")
    if is_hung_up_on:
        leader.server.hang_up("n0", time.monotonic())
    wait_until(lambda: not is_alive(pid), "the rank's end", DEADLINE_S)
    late = [float(t) for t, _ in node.lines() if t[0].isdigit() and float(t) > woken_s]
    wrote_for_s = max(late, default=woken_s) - woken_s
    record_property("wrote_for_ms", round(wrote_for_s * 1000, 1))
    # A line takes 0.02 s of a core: load stretches the time that guard and rank take, not what the rank gets done.
    assert len(late) <= 12, f"{len(late)} lines in {wrote_for_s * 1000:.0f} ms"


def test_ranks_that_wake_up_and_have_no_successor_go_on(node: Node) -> None:
    leader = node.lead()
    pid, woken_s = stop_and_wake(node, leader, "live")
    leader.serve_until(lambda: any(t[0].isdigit() and float(t) > woken_s + 0.5 for t, _ in node.lines()), "steps")
    leader.serve_for(LEASE_S)
    assert is_alive(pid)
    assert Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"T"


@pytest.mark.root   # locks the guard's memory
def test_ranks_of_a_node_that_sleeps_beyond_the_switch_die_in_their_sleep(node: Node) -> None:
    leader = node.lead()
    process = node.guarded(node.rank(step_s=0.02), leader)
    pid = node.rank_pid()
    leader.guard()
    leader.serve_for(KNOWN_S + 0.5)
    os.killpg(process.pid, signal.SIGSTOP)
    slept_s = time.monotonic()
    before = node.lines()
    leader.serve_until(lambda: not is_alive(pid), "the rank's end", SWITCHED_S + 3.0)
    assert time.monotonic() - slept_s > SWITCHED_S - 0.5
    assert node.lines() == before, "not one line, and nobody had to wake"
    assert process.wait(DEADLINE_S) == -signal.SIGKILL


@pytest.mark.root
def test_ranks_do_not_outlive_their_guard(node: Node) -> None:
    process = node.guarded(node.rank("ignore-term"))
    pid = node.rank_pid()
    time.sleep(TICK_S + 0.5)   # it ties new ranks once a second, the first at once
    process.kill()
    wait_until(lambda: not is_alive(pid), "the rank's end", DEADLINE_S)


def start_sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


@pytest.fixture
def fuses() -> Iterator[Fuses]:
    """Fuses that end what is not renewed for two seconds, after their trial. Where the machine stands still in it, for
    half a second, they end nobody.
    """
    for _ in range(10):
        made = Fuses(2.0)
        time.sleep(made.TRIAL_S + 0.1)
        made.renew([])
        if made.is_silent:
            break
    assert made.is_silent
    yield made
    made.remove()


def test_a_fuse_that_is_not_renewed_ends_its_rank_by_the_kernel_alone(fuses: Fuses) -> None:
    rank, other = start_sleeper(), start_sleeper()
    try:
        fuses.renew([rank.pid, other.pid])
        lit_s = time.monotonic()
        fuses.renew([rank.pid])
        assert rank.wait(60) == -signal.SIGKILL
        assert time.monotonic() - lit_s > 1.8
        assert other.poll() is None, "it was let go"
    finally:
        for process in (rank, other):
            process.kill()
            process.wait()


# Lights a fuse for itself, and waits.
SELF_LIT = """
import os, sys, time
guard = {"__name__": "guard"}
exec(os.environ["SOURCE"], guard)
for _ in range(10):
    fuses = guard["Fuses"](2.0)
    time.sleep(fuses.TRIAL_S + 0.1)
    fuses.renew([os.getpid()])
    if fuses.is_silent:
        break
time.sleep(30)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become somebody else")
def test_a_fuse_burns_for_an_ordinary_user() -> None:
    done = subprocess.run(["/usr/bin/python3", "-I", "-S", "-c", SELF_LIT], user=65534, group=65534, extra_groups=[],
                          cwd="/", env={"SOURCE": SOURCE}, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_fuse_that_is_renewed_ends_nobody_and_a_child_keeps_none_alive(fuses: Fuses) -> None:
    rank = start_sleeper()
    children = []
    try:
        fuses.renew([rank.pid])
        for _ in range(10):
            child = os.fork()
            if child == 0:   # as a look at a frozen folder: it outlives the fuses that it was born with
                fuses.remove()
                time.sleep(30)
                os._exit(0)
            children.append(child)
            time.sleep(0.4)
            fuses.renew([rank.pid])
        assert rank.poll() is None
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        rank.kill()
        rank.wait()


def test_where_something_answers_in_the_doors_place_no_fuse_is_lit() -> None:
    made = Fuses(2.0)
    made.listener.close()   # the kernel refuses what is repeated after a second, as a firewall would
    time.sleep(made.TRIAL_S + 0.1)
    rank = start_sleeper()
    try:
        made.renew([rank.pid])
        assert not made.is_silent and not made.lit
    finally:
        rank.kill()
        rank.wait()


def test_a_guard_that_only_runs_on_ends_nobody(node: Node) -> None:
    leader = node.lead()
    node.guarded(node.rank(), leader)
    pid = node.rank_pid()
    leader.serve_for(SWITCHED_S + 1.0)
    assert is_alive(pid)


# --- signals of Slurm's -------------------------------------------------------------------------------------------

# The last lines of /proc/PID/cgroup in a batch job on Slurm 22.05 (recorded), and as cgroups(7) and Slurm's Cgroup v2
# guide give them.
V1 = "6:freezer:/slurm_n0/uid_1001/job_4711/step_batch\n4:memory:/slurm_n0/uid_1001/job_4711/step_batch/task_0\n0::/\n"
V1_WITHOUT_PROCTRACK = "6:freezer:/\n4:memory:/slurm_n0/uid_1001/job_4711/step_batch/task_0\n0::/\n"
V2 = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n"


@pytest.mark.parametrize(("text", "is_by_cgroups"), [
    (V1, True), (V1_WITHOUT_PROCTRACK, False), (V2, True), (V2.replace("4711", "47"), False),
    ("0::/user.slice/user-1000.slice/session-3.scope\n", False), ("", False), ("torn", False),
], ids=["v1", "v1 without proctrack/cgroup", "v2", "another job", "no job", "empty", "torn"])
def test_tracking_by_cgroups_is_read_from_the_processes_own_groups(
    text: str, is_by_cgroups: bool, tmp_path: Path
) -> None:
    (tmp_path / "cgroup").write_text(text)
    assert is_told_alone("4711", str(tmp_path / "cgroup")) == is_by_cgroups
    assert not is_told_alone("", str(tmp_path / "cgroup")), "outside of a job"


@pytest.mark.parametrize(("groups", "told"), [(V1, "told\n"), ("", "")], ids=["by cgroups", "by other means"])
def test_term_that_slurm_sends_to_the_task_alone_reaches_a_training_that_handles_it(
    node: Node, tmp_path: Path, groups: str, told: str
) -> None:
    out, ready = tmp_path / "out", tmp_path / "ready"
    (tmp_path / "cgroup").write_text(groups)
    source = SOURCE.replace('"/proc/self/cgroup"', repr(str(tmp_path / "cgroup")))
    assert source != SOURCE
    program = (f"import signal, sys, time\n"
               f"def told(number, frame):\n open({str(out)!r}, 'a').write('told\\n'); sys.exit(3)\n"
               f"signal.signal(signal.SIGTERM, told)\nopen({str(ready)!r}, 'w')\ntime.sleep({60 if told else 1})\n")
    process = node.guarded([sys.executable, "-c", program], source=source, SLURM_JOB_ID="4711")
    wait_until(ready.exists, "the training", DEADLINE_S)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == (3 if told else 0)
    assert (out.read_text() if out.exists() else "") == told


def test_term_to_the_task_alone_ends_a_training_that_does_not_handle_it(node: Node, tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text(V1)
    source = SOURCE.replace('"/proc/self/cgroup"', repr(str(tmp_path / "cgroup")))
    process = node.guarded(["sleep", "60"], source=source, SLURM_JOB_ID="4711")
    wait_until(lambda: bool(children_of(process.pid)), "the training", DEADLINE_S)
    time.sleep(0.3)   # its exec
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == -signal.SIGTERM


# --- the sweep ----------------------------------------------------------------------------------------------------


def sweep(mark: str, node_name: str, grace_s: float = 0.5, python: str = sys.executable) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-I", "-S", "-c", SOURCE, "--sweep", mark, str(grace_s)], capture_output=True, check=True,
        timeout=DEADLINE_S, env={**os.environ, "SLURMD_NODENAME": node_name})
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def left_behind(node: Node, node_name: str, *how: str) -> int:
    """A rank without any guard; its pid."""
    node.guards.append(subprocess.Popen(
        node.rank(*how), stdout=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "SAFELAUNCH_MARK": node.mark, "SLURMD_NODENAME": node_name}))
    return node.rank_pid()


@pytest.mark.parametrize("how", [(), ("ignore-term",)], ids=["on TERM", "on KILL"])
def test_a_sweep_ends_what_a_dead_guard_has_left_behind(node: Node, how: tuple[str, ...]) -> None:
    pid = left_behind(node, "n0", *how)
    assert sweep(node.mark, "n0") == {"node": "n0", "found": 1, "left": []}
    assert not is_alive(pid)


def test_a_sweep_leaves_other_nodes_and_other_attempts_alone(node: Node) -> None:
    pid = left_behind(node, "n1")
    assert sweep(node.mark, "n0") == {"node": "n0", "found": 0, "left": []}
    assert sweep(f"{node.mark}.2", "n1") == {"node": "n1", "found": 0, "left": []}
    assert is_alive(pid)


def test_a_sweep_leaves_a_job_alone_that_the_script_has_submitted_with_its_mark(node: Node) -> None:
    node.mark = f"run{os.getpid()}.7.1"
    other, own = (subprocess.Popen(["sleep", "600"], env={"SAFELAUNCH_MARK": node.mark, "SLURM_JOB_ID": job})
                  for job in ("8", "7"))
    try:
        assert sweep(node.mark, "n0") == {"node": "n0", "found": 1, "left": []}
        assert own.wait(DEADLINE_S) == -signal.SIGTERM and other.poll() is None
    finally:
        for process in (other, own):
            process.kill()
            process.wait()


def test_a_sweep_that_finds_nothing_says_so(node: Node) -> None:
    assert sweep(node.mark, "n5") == {"node": "n5", "found": 0, "left": []}


# --- any python3 of the node --------------------------------------------------------------------------------------


def test_the_guard_is_python_3_9() -> None:
    ast.parse(SOURCE, feature_version=(3, 9))


def test_the_guard_travels_in_one_environment_variable() -> None:
    assert len(SOURCE.encode()) < 64 << 10   # MAX_ARG_STRLEN is 128 kB


def oldest_python() -> str:
    """A python3.9 of this machine that runs; skips where there is none."""
    candidates = [shutil.which("python3.9"), *glob.glob(str(Path.home() / ".pyenv/versions/3.9.*/bin/python3.9"))]
    for python in filter(None, candidates):
        if subprocess.run([python, "-I", "-S", "-c", ""], capture_output=True, timeout=DEADLINE_S).returncode == 0:
            return python   # a version manager's shim can be there and not run
    pytest.skip("no python3.9 on this machine")


def test_the_guard_runs_under_python_3_9(node: Node) -> None:
    python, leader = oldest_python(), node.lead()
    process = node.guarded(node.rank("usr2"), leader, python=python)
    pid, guard = node.rank_pid(), leader.guard()
    leader.tell(do="signal", signal=int(signal.SIGUSR2))
    leader.serve_until(lambda: ["USR2", str(pid)] in node.lines(), "the signal")
    leader.tell(do="end", grace_s=5.0)
    leader.serve_until(lambda: guard.gone, "the end")
    assert process.wait(DEADLINE_S) == -signal.SIGTERM


def test_the_fence_and_the_sweep_work_under_python_3_9(node: Node) -> None:
    python = oldest_python()
    node.guarded(node.rank(), python=python)
    pid = node.rank_pid()
    node.put_record("ended")
    wait_until(lambda: not is_alive(pid), "the ranks' end")
    assert sweep(node.mark, "n0", python=python)["left"] == []
