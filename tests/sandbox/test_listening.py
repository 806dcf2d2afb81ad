"""What a sandbox's daemons listen to, and who gets an answer there."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from safelaunch.sandbox import daemons
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.sandbox.namespaces import command_name
from tests.sandboxes import skip_unless_able, wait_until

LOOPBACK = {"127.0.0.1", "::1"}
ALL_ADDRESSES = {"0.0.0.0", "::"}


def listening(sandbox: Sandbox) -> dict[str, set[str]]:
    """The addresses on which the sandbox's processes listen, by the command's name."""
    found = defaultdict(set)
    for name in sorted(path.name for path in (sandbox.dir / "ns").iterdir()):
        for pid in daemons.machine(sandbox.dir, name).pids():
            with suppress(psutil.NoSuchProcess):   # a child that has just ended
                for one in psutil.Process(pid).net_connections("inet"):
                    if one.status == psutil.CONN_LISTEN:
                        found[command_name(pid)].add(one.laddr.ip)
    return dict(found)


def test_servers_listen_on_loopback_alone(own_sandbox: Callable[..., Sandbox]) -> None:
    skip_unless_able(with_accounting=True, with_netns=False)
    found = listening(own_sandbox(2, accounting=True))
    assert set(found) == {"slurmctld", "slurmdbd", "slurmd"}   # MariaDB and munge have sockets in the folder
    assert found["slurmctld"] <= LOOPBACK and found["slurmdbd"] <= LOOPBACK
    assert found["slurmd"] <= ALL_ADDRESSES   # as docs/security.md says; see the next test


def ask_slurmd(sandbox: Sandbox, munge: Path, conf: Path) -> subprocess.CompletedProcess[str]:
    """What the first node's slurmd says of itself to a client of that munge."""
    own = sandbox.dir / "slurm.conf"
    first = next(part for part in own.read_text().split() if part.startswith("Port=["))
    port = first.removeprefix("Port=[").partition("-")[0].rstrip("]")
    conf.write_text(own.read_text().replace(f"{sandbox.dir}/munge", str(munge)) + f"SlurmdPort={port}\n")
    return subprocess.run(["scontrol", "show", "slurmd"], capture_output=True, text=True, timeout=60, check=False,
                          env={**daemons.environment(sandbox.dir), "SLURM_CONF": str(conf)})


def test_slurmd_answers_nobody_who_has_not_the_sandboxs_key(
    own_sandbox: Callable[..., Sandbox], tmp_path: Path
) -> None:
    one, other = own_sandbox(1), own_sandbox(1)
    assert "Active Steps" in ask_slurmd(one, one.dir / "munge", tmp_path / "own.conf").stdout
    refused = ask_slurmd(one, other.dir / "munge", tmp_path / "foreign.conf")
    assert "Active Steps" not in refused.stdout
    log = one.dir / "log" / "slurmd-n0.log"
    wait_until(lambda: "authentication error" in log.read_text(), 60, "slurmd says nothing of it")
