"""What a node of the sandbox is to the jobs on it, and what is left of it when it dies."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.errors import SandboxError
from safelaunch.sandbox import daemons
from safelaunch.sandbox.cluster import Sandbox
from tests.sandboxes import wait_until

# A rank that answers every line, and tells its port through a file.
ECHO = """
import os, socket, sys
server = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1] + ".new", "w").write(str(server.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
peer = server.accept()[0]
while line := peer.recv(100):
    peer.sendall(line)
"""


# One process that dies early, many that take time to be killed, and one that tells of the first one's death.
WITNESS = """
import os, sys, time
ends, held = os.pipe()
os.set_inheritable(held, True)
def born(work):
    if os.fork() == 0:
        work()
        os._exit(0)
def wait_for_the_end():
    os.close(held)
    open(sys.argv[1] + "/up", "w").close()
    os.read(ends, 1)
    open(sys.argv[1] + "/told", "w").close()
born(lambda: os.execvp("sleep", ["sleep", "1000"]))
for _ in range(1000):
    born(lambda: (os.close(held), time.sleep(1000)))
born(wait_for_the_end)
os.close(held)
time.sleep(1000)
"""


def talk_to_rank(sandbox: Sandbox, workdir: Path, node: str) -> socket.socket:
    """A connection to a rank of sl-alice that runs on `node`."""
    port = workdir / "port"
    sandbox.start(["srun", "-N1", "-w", node, "python3", "-c", ECHO, str(port)])
    wait_until(port.exists, 60, "the rank did not start")
    peer = socket.create_connection(("127.0.0.1", int(port.read_text())), timeout=60)
    assert ask(peer) == b"alive"
    return peer


def ask(peer: socket.socket) -> bytes:
    peer.sendall(b"alive")
    return peer.recv(100)


def test_each_task_of_an_ordinary_user_sees_its_nodes_name_and_gpus(sandbox: Sandbox) -> None:
    task = "echo $(hostname -s) $(id -un) $(id -Gn | tr ' ' ,) $CUDA_VISIBLE_DEVICES"
    said = sandbox.run(["srun", "-N4", "--gpus-per-node=8", "bash", "-c", task])
    expected = [f"n{i} sl-alice sl-alice,sl-team 0,1,2,3,4,5,6,7" for i in range(4)]
    assert sorted(said.stdout.splitlines()) == expected, said.stderr


def test_a_crashed_nodes_connections_close_at_once(sandbox: Sandbox, workdir: Path) -> None:
    with talk_to_rank(sandbox, workdir, "n1") as peer:
        sandbox.crash("n1")
        peer.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(100) == b""


def test_no_process_of_a_crashed_node_tells_of_another_ones_end(sandbox: Sandbox, workdir: Path) -> None:
    sandbox.start(["srun", "-N1", "-w", "n1", "python3", "-c", WITNESS, str(workdir)])
    wait_until((workdir / "up").exists, 60, "the witness did not start")
    sandbox.crash("n1")
    assert not (workdir / "told").exists()


def test_a_silent_nodes_connections_stay_open_and_say_nothing(sandbox: Sandbox, workdir: Path) -> None:
    with talk_to_rank(sandbox, workdir, "n1") as peer:
        sandbox.crash("n1", silent=True)
        peer.settimeout(1)
        with pytest.raises(TimeoutError):
            ask(peer)


def test_a_silent_node_that_is_healed_goes_on_where_it_was(sandbox: Sandbox, workdir: Path) -> None:
    with talk_to_rank(sandbox, workdir, "n1") as peer:
        sandbox.crash("n1", silent=True)
        sandbox.heal("n1")
        assert ask(peer) == b"alive"


def test_a_silent_node_can_be_killed_later(sandbox: Sandbox, workdir: Path) -> None:
    with talk_to_rank(sandbox, workdir, "n1"):
        sandbox.crash("n1", silent=True)
        sandbox.crash("n1")
        assert sandbox.machine("n1").pids() == []


def test_a_crash_takes_what_a_job_left_in_the_background(sandbox: Sandbox, workdir: Path) -> None:
    left = workdir / "pid"
    task = f"setsid nohup bash -c 'echo $$ > {left}; exec sleep 1000' </dev/null >/dev/null 2>&1 & sleep 1000"
    sandbox.start(["srun", "-N1", "-w", "n2", "bash", "-c", task])
    wait_until(lambda: left.exists() and left.read_text().strip() != "", 60, "the job did not start")
    assert int(left.read_text()) in sandbox.machine("n2").pids()
    sandbox.crash("n2")
    assert not Path("/proc", left.read_text().strip(), "cmdline").exists() or is_zombie(int(left.read_text()))


def is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    return True   # reaped meanwhile


@pytest.mark.parametrize("silent", [False, True], ids=["loud", "silent"])
def test_a_crash_leaves_the_other_nodes_alone(sandbox: Sandbox, silent: bool) -> None:
    before = {node: sandbox.machine(node).pids() for node in ("n0", "n2", "n3")}
    sandbox.crash("n1", silent=silent)
    assert {node: sandbox.machine(node).pids() for node in before} == before
    assert sandbox.run(["srun", "-N3", "-x", "n1", "true"]).returncode == 0


@pytest.mark.parametrize("silent", [False, True], ids=["loud", "silent"])
def test_a_healed_node_takes_jobs_again(sandbox: Sandbox, silent: bool) -> None:
    sandbox.crash("n3", silent=silent)
    sandbox.heal("n3")
    asked = sandbox.run(["srun", "-N1", "-w", "n3", "hostname", "-s"])
    assert asked.stdout == "n3\n", asked.stderr


@pytest.mark.parametrize("state", ["DOWN", "DRAIN", "FAIL"])
def test_heal_resumes_a_node_that_somebody_took_out(sandbox: Sandbox, state: str) -> None:
    sandbox.slurm(["scontrol", "update", "NodeName=n0", f"State={state}", "Reason=test"])
    sandbox.heal("n0")
    sandbox.wait_idle()


def test_heal_brings_back_a_node_that_slurm_gave_up(own_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = own_sandbox(2, conf={"SlurmdTimeout": "2"})
    sandbox.crash("n1", silent=True)
    wait_until(lambda: "down" in sandbox.slurm(["sinfo", "-h", "-n", "n1", "-o", "%T"]), 60, "Slurm did not notice")
    sandbox.heal("n1")
    sandbox.wait_idle()   # where this machine stood still for two seconds, the other one was given up, too
    assert sandbox.run(["srun", "-N2", "true"]).returncode == 0


def test_a_silent_slurmctld_answers_nobody_until_it_is_healed(sandbox: Sandbox) -> None:
    sandbox.crash("ctl", silent=True)
    with pytest.raises(subprocess.TimeoutExpired):
        sandbox.run(["squeue"], timeout_s=1)
    sandbox.heal("ctl")
    assert sandbox.run(["squeue"], timeout_s=60).returncode == 0


def read(file: Path) -> bytes:
    """What is in it; slurmctld takes its name away for a moment when it saves anew."""
    with contextlib.suppress(FileNotFoundError):
        return file.read_bytes()
    return b""


def test_a_crashed_slurmctld_comes_back_with_its_jobs(sandbox: Sandbox, workdir: Path) -> None:
    job = sandbox.run(["sbatch", "--parsable", "-J", "survivor", "--wrap", "sleep 1000"], cwd=workdir).stdout.strip()
    saved = sandbox.dir / "state" / "job_state"
    wait_until(lambda: b"survivor" in read(saved), 60, "slurmctld did not save its state")
    sandbox.crash("ctl")
    sandbox.heal("ctl")
    assert job in sandbox.slurm(["squeue", "-h", "-o", "%A"]).split()


def test_slurmctld_finds_every_host_of_a_job_step_by_name_and_a_node_finds_none(sandbox: Sandbox) -> None:
    def finds(machine: str, name: str) -> bool:
        argv = daemons.machine(sandbox.dir, machine).enter(["getent", "hosts", name])
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0

    hosts = (daemons.LOGIN, *sandbox.nodes)
    assert all(finds(daemons.CONTROLLER, name) for name in hosts)
    assert not any(finds(sandbox.nodes[0], name) for name in hosts), "each drill is a site whose nodes find no name"


def test_an_unknown_node_is_refused_with_the_known_ones(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="n0, n1, n2, n3, ctl"):
        sandbox.crash("n9")


def test_a_command_that_takes_too_long_is_killed_with_its_children(sandbox: Sandbox) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        sandbox.run(["bash", "-c", "sleep 1000 & sleep 1000"], timeout_s=0.5)
    login = daemons.machine(sandbox.dir, daemons.LOGIN)
    wait_until(lambda: not login.pids(), 60, "a child is left")


def test_commands_see_nothing_of_the_callers_environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    shown = dict(line.partition("=")[::2] for line in sandbox.run(["env"], user="sl-bob").stdout.splitlines())
    assert shown["SLURM_CONF"] == str(sandbox.conf)
    assert shown["HOME"] == str(sandbox.dir / "home" / "sl-bob")
    assert "SLURM_JOB_ID" not in shown


def test_a_teammate_reads_the_workdir_but_does_not_write_it(sandbox: Sandbox, workdir: Path) -> None:
    assert sandbox.run(["ls", str(workdir)], user="sl-bob").returncode == 0
    assert sandbox.run(["touch", str(workdir / "x")], user="sl-bob").returncode == 1
