"""A sandbox with cables: each machine has an address, and a node that is cut off is alive but alone."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from safelaunch.errors import SandboxError
from safelaunch.sandbox import daemons, network
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.sandbox.command import run_command
from tests.sandboxes import make_workdir, wait_until

# A task that counts aloud in a file, as a training that writes does.
COUNT = "i=0; while :; do echo $((i += 1)) >> {file}; sleep 0.05; done"
# Connects to the address and port given, and says what came of it.
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3]))"


@pytest.fixture
def wired(own_sandbox: Callable[..., Sandbox]) -> Iterator[Sandbox]:
    yield own_sandbox(3, netns=True)


def is_cut(sandbox: Sandbox, node: str) -> bool:
    """The node's cable is pulled."""
    switch = sandbox.dir / "net" / network.SWITCH
    return "state DOWN" in run_command(["nsenter", f"--net={switch}", "ip", "-o", "link", "show", node])


def connect(sandbox: Sandbox, node: str, timeout_s: float = 2.0) -> str:
    """"" when the login machine reaches slurmd on the node, else the last line of the error."""
    shown = sandbox.slurm(["scontrol", "--oneliner", "show", "node", node])
    port = next(word.partition("=")[2] for word in shown.split() if word.startswith("Port="))
    done = sandbox.run(["python3", "-c", CONNECT, node, port, str(timeout_s)])
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def test_every_machine_finds_every_other_by_name(wired: Sandbox) -> None:
    said = wired.run(["srun", "-N3", "getent", "hosts", "n0", "n1", "n2", "ctl"])
    assert said.stdout.split().count(network.address_of("n1")) == 3, said.stderr
    assert wired.run(["getent", "hosts", "n2"]).stdout.split() == ["10.77.1.3", "n2"]


def test_nothing_leads_out(wired: Sandbox) -> None:
    done = wired.run(["python3", "-c", CONNECT, "192.0.2.1", "80", "5"], timeout_s=60)
    assert "Network is unreachable" in done.stderr


def test_a_job_runs_over_all_nodes(wired: Sandbox) -> None:
    said = wired.run(["srun", "-N3", "--gpus-per-node=8", "hostname", "-s"])
    assert sorted(said.stdout.split()) == ["n0", "n1", "n2"], said.stderr


def test_a_cut_node_goes_on_and_nobody_reaches_it(wired: Sandbox) -> None:
    file = make_workdir(wired) / "count"
    wired.run(["sbatch", "-N1", "-w", "n1", "--wrap", COUNT.format(file=file)])
    wait_until(lambda: file.exists() and file.stat().st_size > 0, 60, "the job did not start")
    assert connect(wired, "n1", 60) == ""
    wired.crash("n1", cut=True)
    so_far = file.stat().st_size
    # It times out: no RST, and no "No route to host", by which a peer would know at once.
    assert "timed out" in connect(wired, "n1")
    assert connect(wired, "n0", 60) == ""
    wait_until(lambda: file.stat().st_size > so_far, 60, "its job stands still")


def test_a_cut_nodes_connections_go_on_when_it_is_healed(wired: Sandbox) -> None:
    script = (
        "import socket, sys\nserver = socket.create_server(('', 7777)); open(sys.argv[1], 'w').close()\n"
        "peer = server.accept()[0]\nwhile line := peer.recv(100): peer.sendall(line)"
    )
    ask = (
        "import socket, sys\npeer = socket.create_connection(('n2', 7777), timeout=300)\n"
        "for line in sys.stdin:\n peer.sendall(line.encode()); print(peer.recv(100).decode(), end='', flush=True)"
    )
    ready = make_workdir(wired) / "ready"
    wired.start(["srun", "-N1", "-w", "n2", "python3", "-c", script, str(ready)])
    wait_until(ready.exists, 60, "the rank did not start")
    peer = subprocess.Popen(
        daemons.machine(wired.dir, daemons.LOGIN).enter(["python3", "-c", ask]), stdin=-1, stdout=-1, text=True, cwd="/"
    )
    assert peer.stdin and peer.stdout
    with peer:
        print("one", file=peer.stdin, flush=True)
        assert peer.stdout.readline() == "one\n"
        wired.crash("n2", cut=True)
        print("two", file=peer.stdin, flush=True)
        wired.heal("n2")
        assert peer.stdout.readline() == "two\n"
        peer.stdin.close()


def test_a_cut_node_is_used_again_after_heal(wired: Sandbox) -> None:
    wired.crash("n1", cut=True)
    assert is_cut(wired, "n1")
    wired.heal("n1")
    assert not is_cut(wired, "n1")
    assert wired.run(["srun", "-N3", "true"]).returncode == 0


def test_a_cut_slurmctld_answers_nobody_until_it_is_healed(wired: Sandbox) -> None:
    wired.crash("ctl", cut=True)
    with pytest.raises(subprocess.TimeoutExpired):
        wired.run(["squeue"], timeout_s=1)
    wired.heal("ctl")
    assert wired.run(["squeue"], timeout_s=60).returncode == 0


def test_the_hosts_network_is_left_alone(own_sandbox: Callable[..., Sandbox]) -> None:
    before = {name for _, name in socket.if_nameindex()}, Path("/proc/net/route").read_text()
    hosts = Path("/etc/hosts").read_text()
    box = own_sandbox(2, netns=True)
    assert ({name for _, name in socket.if_nameindex()}, Path("/proc/net/route").read_text()) == before
    assert Path("/etc/hosts").read_text() == hosts
    box.down()
    assert str(box.dir) not in Path("/proc/self/mountinfo").read_text()


def test_two_wired_sandboxes_live_side_by_side(own_sandbox: Callable[..., Sandbox]) -> None:
    for box in (own_sandbox(2, netns=True), own_sandbox(2, netns=True)):
        assert box.run(["srun", "-N2", "true"]).returncode == 0


def test_without_cables_nothing_can_be_cut_and_the_way_is_named(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="share the host's network") as refused:
        sandbox.crash("n1", cut=True)
    assert "up --netns" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("name", "address"),
    [("ctl", "10.77.0.1"), ("n199", "10.77.1.200"), ("n200", "10.77.2.1"), ("n1023", "10.77.6.24")],
    ids=["server", "last-of-block", "next-block", "last"],
)
def test_each_machine_has_an_address_of_its_own(name: str, address: str) -> None:
    assert network.address_of(name) == address
