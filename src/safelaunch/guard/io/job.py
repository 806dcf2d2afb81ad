"""The job that this process runs in, from the environment that Slurm (or the local cluster) gave it."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from safelaunch.node.host import is_coerced
from safelaunch.slurm import nodeset

MOST_ADDRESSES = 8   # bridges of containers count, too


class Allocation(NamedTuple):
    """One allocation, seen from its batch host."""

    id: str
    nodes: tuple[str, ...]
    host: str                    # this node, by Slurm's name for it
    cwd: str                     # where the training starts
    is_local: bool               # the local cluster: processes of this machine, no Slurm
    env: Mapping[str, str]

    @property
    def cluster(self) -> str:
        """Slurm's ClusterName, in the environment SLURM_CLUSTER_NAME; "" = not there."""
        return "" if self.is_local else self.env.get("SLURM_CLUSTER_NAME", "")

    @property
    def restart_count(self) -> int:
        """How often Slurm has requeued this job, which keeps its id. Source: sbatch(1)."""
        text = self.env.get("SLURM_RESTART_COUNT", "")
        return int(text) if text.isdigit() else 0

    @property
    def has_gpus(self) -> bool:
        """Whether the allocation came with GPUs, so that a helper step must ask for none."""
        return any(key in self.env for key in ("SLURM_GPUS_PER_NODE", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE",
                                               "SLURM_GPUS", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"))


def current(env: Mapping[str, str]) -> Allocation:
    """The job around this process; raises KeyError outside of one."""
    text = env.get("SLURM_JOB_NODELIST") or env["SLURM_NODELIST"]
    host = env.get("SAFELAUNCH_NODE") or env.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    # --export=NONE leaves it; with it no helper step would get its environment.
    ours = ("SLURM_EXPORT_ENV", "LC_CTYPE") if env is os.environ and is_coerced() else ("SLURM_EXPORT_ENV",)
    kept = {key: value for key, value in env.items() if key not in ours}
    return Allocation(env["SLURM_JOB_ID"], nodeset.expand(text), host, str(Path.cwd()), "SAFELAUNCH_LOCAL" in env, kept)


class StandbyStart(NamedTuple):
    """What the leader tells a standby at its start: the job, the leader's endpoint and token, nodes' addresses."""

    job: Allocation
    endpoint: tuple[str, int]
    token: str
    addresses: Mapping[str, str]


def hand_to_standby(job: Allocation, endpoint: tuple[str, int], token: str,
                    addresses: Mapping[str, str]) -> dict[str, str]:
    """The environment of a standby's step.

    A step has SLURM_* of its own, with which no srun could start an attempt, so the batch script's go with them.
    """
    slurm = {key: value for key, value in job.env.items() if key.startswith(("SLURM_", "SLURMD_"))}
    facts = {"env": slurm, "cwd": job.cwd, "endpoint": endpoint, "addresses": dict(addresses)}
    return {**job.env, "SAFELAUNCH_STANDBY": json.dumps(facts), "SAFELAUNCH_TOKEN": token}


def standby(env: Mapping[str, str]) -> StandbyStart:
    """What this standby was told; raises KeyError or ValueError where that is missing or wrong."""
    facts = json.loads(env["SAFELAUNCH_STANDBY"])
    host = env.get("SAFELAUNCH_NODE") or env.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    own = {key: value for key, value in env.items()
           if not key.startswith(("SLURM_", "SLURMD_")) and key not in ("SAFELAUNCH_STANDBY", "SAFELAUNCH_TOKEN")}
    own |= {**facts["env"], "SLURMD_NODENAME": host}
    job = Allocation(own["SLURM_JOB_ID"], nodeset.expand(own.get("SLURM_JOB_NODELIST") or own["SLURM_NODELIST"]), host,
                     facts["cwd"], False, own)
    return StandbyStart(job, (facts["endpoint"][0], int(facts["endpoint"][1])), env["SAFELAUNCH_TOKEN"],
                        facts["addresses"])


def own_addresses(table: Path = Path("/proc/net/fib_trie")) -> tuple[str, ...]:
    """This host's IPv4 addresses on all of its networks, without loopback; () where they cannot be read.

    The kernel's own list: a line "|-- ADDRESS" is followed by "/32 host LOCAL" for an address of this host.
    """
    try:
        text = table.read_text()
    except OSError:
        return ()
    found = re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", text)
    return tuple(dict.fromkeys(address for address in found if not address.startswith("127.")))[:MOST_ADDRESSES]


def address_of(node: str) -> str | None:
    """A name or address of a node that other nodes can connect to; None when this host cannot resolve it."""
    return node if addresses_of(node) else None


def addresses_of(node: str) -> tuple[str, ...]:
    """The addresses of a node's name; () when this host cannot resolve it."""
    try:
        found = socket.getaddrinfo(node, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(row[4][0]) for row in found))
