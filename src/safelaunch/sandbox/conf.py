"""slurm.conf and gres.conf of a sandbox, as text. Slurm's defaults stay where they decide what a crash looks like."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from safelaunch.errors import SandboxError
from safelaunch.sandbox import network
from safelaunch.sandbox.ports import FIRST_PORT
from safelaunch.sandbox.registry import RegisteredSandbox

# slurmstepd binds <spool>/<node>_<job>.<step>, and a socket's path ends at 108 bytes (unix(7)).
MAX_DIR_LENGTH = 64
# A job in `high` takes the nodes of jobs in the other two: `low` is cancelled, `low-requeue` is queued again. With
# grace the steps get SIGTERM at once and the batch shell nothing. The kill comes when slurmctld next looks for jobs
# past their time, every 30 s (22.05, measured: 28 s after the SIGTERM). `main` neither preempts nor is preempted.
PREEMPTION = [
    "PartitionName=low Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=5",
    "PartitionName=low-requeue Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=5",
    "PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF",
]


def node_names(count: int) -> tuple[str, ...]:
    """n0, n1, …"""
    return tuple(f"n{i}" for i in range(count))


def check_dir(folder: Path) -> None:
    """Raise SandboxError for a folder that Slurm cannot use, before anything is made."""
    text = str(folder)
    if not folder.is_absolute() or not re.fullmatch(r"[A-Za-z0-9_./+-]+", text):
        raise SandboxError(f"{text!r}: expected an absolute path of plain characters (slurm.conf has no quotes)")
    if len(text) > MAX_DIR_LENGTH:
        raise SandboxError(f"{text}: longer than {MAX_DIR_LENGTH} characters: no room for the sockets in it")
    for parent in folder.parents:
        if parent.exists() and not parent.stat().st_mode & 0o001:
            raise SandboxError(
                f"{parent} cannot be passed by ordinary users, and jobs run as such", hint="Choose another --dir"
            )


def render_slurm_conf(entry: RegisteredSandbox, overrides: Mapping[str, str], has_two_networks: bool = False) -> str:
    """slurm.conf of the sandbox; `overrides` wins over every setting here, whatever its capitals."""
    settings = _settings(entry)
    spelling = {key.lower(): key for key in settings}
    for key, value in overrides.items():
        if not re.fullmatch(r"[A-Za-z]+", key) or "\n" in value:
            raise SandboxError(f"--conf {key}={value}: expected one KEY=VALUE of slurm.conf(5)")
        settings[spelling.get(key.lower(), key)] = value
    lines = [f"{key}={value}" for key, value in settings.items()]
    main = " PreemptMode=OFF" if entry.preemption else ""
    address_of = network.second_address_of if has_two_networks else network.address_of
    lines += [*_nodes(entry, address_of), "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP" + main]
    lines += PREEMPTION if entry.preemption else []
    return "\n".join(lines) + "\n"


def _nodes(entry: RegisteredSandbox, address_of: Callable[[str], str]) -> list[str]:
    size = f"CPUs={entry.cpus} RealMemory={entry.memory_mb}" + (f" Gres=gpu:{entry.gpus}" if entry.gpus else "")
    if not entry.netns:
        last, port = entry.nodes - 1, entry.port
        return [f"NodeName=n[0-{last}] NodeAddr=127.0.0.1 Port=[{port + 1}-{port + entry.nodes}] {size}"]
    return [
        f"NodeName={name} NodeAddr={address_of(name)} Port={entry.port + 1 + i} {size}"
        for i, name in enumerate(node_names(entry.nodes))
    ]


def render_gres_conf(entry: RegisteredSandbox) -> str:
    """gres.conf: all nodes share the same stand-ins for GPUs."""
    if not entry.gpus:
        return ""
    return f"NodeName=n[0-{entry.nodes - 1}] Name=gpu File={entry.dir}/gpu/nvidia[0-{entry.gpus - 1}]\n"


def _settings(entry: RegisteredSandbox) -> dict[str, str]:
    folder = entry.dir
    return {
        "ClusterName": entry.name,
        # slurmctld starts only on the host that is named here.
        "SlurmctldHost": f"ctl({network.address_of('ctl')})" if entry.netns else "localhost",
        "SlurmctldPort": str(entry.port),
        "CommunicationParameters": "NoCtldInAddrAny",  # the controller listens on its own address only
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/run/slurmd-%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/slurmd-%n.log",
        "SlurmdParameters": "config_overrides",  # believe CPUs and memory below, not the machine
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU",
        # A job that waited for another one starts 0.05 s after its end. With bf_interval=1 alone it is 1 s, with the
        # defaults 2 s (measured on 22.05, four jobs each).
        "SchedulerParameters": "bf_interval=1,sched_interval=1,batch_sched_delay=0",
        # The defaults, written out because every drill of a node's death stands on them.
        "SlurmdTimeout": "300",
        "KillWait": "30",
        "MinJobAge": "300",
        "ReturnToService": "2",
        "JobRequeue": "1",
        "MpiDefault": "none",
        # Two sandboxes side by side must not both have a job 1: node-local folders are named by job id.
        "FirstJobId": str((entry.port - FIRST_PORT) * 1000 + 1),
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": f"{folder}/log/jobcomp.log",
    } | ({"GresTypes": "gpu"} if entry.gpus else {}) | _accounting(entry) | _preemption(entry) | _cgroup(entry)


def _accounting(entry: RegisteredSandbox) -> dict[str, str]:
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": network.address_of("db") if entry.netns else "localhost",
        "AccountingStoragePort": str(entry.dbd_port),
        # No password: where sacct and slurmctld find munge. They do not look at AuthInfo for slurmdbd (22.05).
        "AccountingStoragePass": f"{entry.dir}/munge/socket",
    } if entry.accounting else {}  # fmt: skip


def _preemption(entry: RegisteredSandbox) -> dict[str, str]:
    return {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"} if entry.preemption else {}


def _cgroup(entry: RegisteredSandbox) -> dict[str, str]:
    # A limit holds where memory is something that is given out (CR_*_Memory). A job that asks for none gets half
    # of a node.
    return {
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": "task/cgroup",
        "JobAcctGatherType": "jobacct_gather/cgroup",
        "JobAcctGatherFrequency": "task=5",
        "SelectTypeParameters": "CR_CPU_Memory",
        "DefMemPerNode": str(max(1, entry.memory_mb // 2)),
    } if entry.cgroup else {}  # fmt: skip
