"""The job that this process runs in, from the environment that Slurm (or the local cluster) gave it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safelaunch.core import nodeset


@dataclass(frozen=True)
class Job:
    """One allocation, seen from its batch host."""

    id: str
    nodes: tuple[str, ...]
    host: str                    # this node, by Slurm's name for it
    cwd: str                     # where the training starts
    is_local: bool               # the local cluster: processes of this machine, no Slurm
    env: Mapping[str, str]

    @property
    def has_gpus(self) -> bool:
        """Whether the allocation came with GPUs, so that a helper step must ask for none."""
        return any(key in self.env for key in ("SLURM_GPUS_PER_NODE", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE",
                                               "SLURM_GPUS", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"))


def current(env: Mapping[str, str]) -> Job:
    """The job around this process; raises KeyError outside of one."""
    text = env.get("SLURM_JOB_NODELIST") or env["SLURM_NODELIST"]
    host = env.get("SAFELAUNCH_NODE") or env.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    return Job(env["SLURM_JOB_ID"], nodeset.expand(text), host, str(Path.cwd()), "SAFELAUNCH_LOCAL" in env, dict(env))


def address_of(node: str) -> str | None:
    """A name or address of a node that other nodes can connect to; None when this host cannot resolve it."""
    try:
        socket.getaddrinfo(node, None)
    except OSError:
        return None
    return node
