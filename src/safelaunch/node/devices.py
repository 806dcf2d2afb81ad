"""What else a node knows of a hang: GPUs, mounts that do not answer, NCCL's RAS, PyTorch's flight recorder.

Each is asked by a disposable child. Travels with node.collect as text: standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time

from safelaunch.node import children, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Optional

SMI_S = 3.0       # it answers in 0.1 to 1 s, and hangs for ever on a GPU that fell off the bus
SYSTEM_PATH = "/usr/bin:/usr/local/bin:/bin:/usr/sbin:/sbin"   # before a PATH whose folders may be frozen
MOUNT_S = 1.0     # of a filesystem that works: far below 0.1 s
RAS_S = 2.0
FLIGHT_S = 3.0    # 2,000 entries with their frames, 4 MB, take 1 s
RAS_PORT = 28028  # NCCL's environment variables: NCCL_RAS_ADDR defaults to localhost:28028
MOST_MOUNTS = 12
MOST_DUMP_BYTES = 64 << 20
# Filesystems that other machines or processes serve, so that they can hang: local disks hang with their node.
_SERVED = re.compile(r"nfs|lustre|gpfs|beegfs|ceph|cifs|smb|fuse|wekafs|panfs|orangefs|pvfs|9p|afs|glusterfs|virtiofs")
_GPU_FIELDS = ("index", "uuid", "utilization.gpu", "memory.used", "memory.total", "clocks.sm", "power.draw",
               "temperature.gpu", "pstate")


def gpu_tasks() -> list[children.Task]:
    """nvidia-smi twice: the GPUs, and who computes on them."""
    csv = "--format=csv,noheader,nounits"
    env = dict(os.environ, PATH=SYSTEM_PATH + ":" + os.environ.get("PATH", ""))
    return [children.Task("gpus", ["nvidia-smi", "--query-gpu=" + ",".join(_GPU_FIELDS), csv], SMI_S, env),
            children.Task("apps", ["nvidia-smi", "--query-compute-apps=pid,gpu_uuid,used_memory", csv], SMI_S, env)]


def read_gpus(gpus: children.Outcome, apps: children.Outcome) -> dict[str, Any]:
    """{"answer": "ok" | "absent" | "late" | words, "gpus": [{index, util, mem_mb, …, "pids"}]}."""
    if gpus.late:
        return {"answer": "late", "gpus": []}
    if gpus.code == 127 or "couldn't communicate with the NVIDIA driver" in gpus.text + gpus.said:
        return {"answer": "absent", "gpus": []}
    if gpus.code != 0:
        return {"answer": (gpus.said or gpus.text.strip())[:200], "gpus": []}
    users: dict[str, dict[int, Optional[float]]] = {}
    for line in apps.text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) >= 3 and words[0].isdigit():
            users.setdefault(words[1], {})[int(words[0])] = _number(words[2])
    rows = []
    for line in gpus.text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == len(_GPU_FIELDS):
            rows.append({"index": words[0], "uuid": words[1], "util": _number(words[2]), "mem_mb": _number(words[3]),
                         "mem_total_mb": _number(words[4]), "clock_mhz": _number(words[5]),
                         "power_w": _number(words[6]), "temp_c": _number(words[7]), "pstate": words[8],
                         "pids": list(users.get(words[1], {})), "held_mb": list(users.get(words[1], {}).values())})
    return {"answer": "ok", "gpus": rows}


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:   # "[N/A]", "[GPU is lost]"
        return None


def mount_tasks(mounts: Mapping[str, str], known_bad: Iterable[str]) -> list[children.Task]:
    """Looks at filesystems that are served from elsewhere; where a process already sleeps on one, none is needed."""
    bad = set(known_bad)
    served = [point for point, fs in mounts.items() if _SERVED.search(fs) and point not in bad]
    return [children.Task(("mount", point), lambda point=point: _touch(point), MOUNT_S)  # type: ignore[misc]
            for point in served[:MOST_MOUNTS]]


def _touch(point: str) -> bytes:
    os.stat(point)
    os.statvfs(point)
    return b"ok"


def read_mount(outcome: children.Outcome) -> str:
    """ok, late, or what it said."""
    return "late" if outcome.late else "ok" if outcome.out == b"ok" else outcome.said


def ras_task(inodes: Iterable[int]) -> Optional[children.Task]:
    """A question to NCCL's RAS where a process of the job itself listens on its port; else None."""
    own = set(inodes)
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(name) as table:
            for line in table:
                words = line.split()
                is_listening = len(words) > 9 and words[3] == "0A" and words[1].endswith(":%04X" % RAS_PORT)
                if is_listening and int(words[9]) in own:
                    return children.Task("ras", _ask_ras, RAS_S)
    return None


def _ask_ras() -> bytes:
    """What `echo verbose status | nc localhost 28028` prints: NCCL user guide, RAS."""
    parts: list[bytes] = []
    with socket.create_connection(("localhost", RAS_PORT), timeout=RAS_S) as line:
        line.sendall(b"verbose status\n")
        with contextlib.suppress(socket.timeout):
            while len(parts) < 64:
                part = line.recv(1 << 14)
                if not part:
                    break
                parts.append(part)
    return b"".join(parts)


def flight_task(name: Any, env: Mapping[str, str], rank: int, since: float) -> children.Task:
    """The flight recorder's dump of a rank, where there is one that is younger than the process."""
    prefixes = [env[key] for key in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE") if env.get(key)]
    home = os.path.expanduser("~/.cache/torch/comm_lib_trace_rank_")
    paths = ["%s%d" % (prefix, rank) for prefix in (*prefixes, "/tmp/nccl_trace_rank_", home)]  # noqa: S108
    return children.Task(name, lambda: _read_flight(paths, since), FLIGHT_S)


def _read_flight(paths: list[str], since: float) -> bytes:
    for path in paths:
        for name in (path, path + ".json"):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name)
                if status.st_uid == os.getuid() and status.st_mtime >= since:
                    return json.dumps({"path": name, "t": status.st_mtime, **_read_one(name, status.st_size)}).encode()
    return b""


def _read_one(name: str, size: int) -> dict[str, Any]:
    """What a dump says; of one that is not understood, why: the file is worth a look by torch's own torchfrtrace."""
    if size > MOST_DUMP_BYTES:
        return {"last": None, "open": [], "why": "%d MB are too much to read here" % (size >> 20)}
    try:
        with open(name, "rb") as file:
            return read_flight(file.read())
    except (ValueError, TypeError, AttributeError) as error:
        return {"last": None, "open": [], "why": str(error)[:200]}


def read_flight(data: bytes) -> dict[str, Any]:
    """{"last": newest collective begun, "open": those not completed, at most 8} of a flight recorder's dump. The dump
    is JSON or a pickle of plain values; raises ValueError for anything else.
    """
    dump = json.loads(data) if data[:1] == b"{" else plain.read(data)
    entries = dump.get("entries", []) if isinstance(dump, dict) else []
    rows = [{"seq": entry.get("collective_seq_id", entry.get("seq_id")), "p2p": bool(entry.get("is_p2p")),
             "what": str(entry.get("profiling_name", "")), "state": str(entry.get("state", "")),
             "group": str((entry.get("process_group") or [""])[-1]), "over": bool(entry.get("retired"))}
            for entry in entries if isinstance(entry, dict)]
    unfinished = [row for row in rows if row["state"] != "completed" and not row["over"]]   # gloo's are only retired
    return {"last": rows[-1] if rows else None, "open": unfinished[-8:]}


def started_t(ticks: int) -> float:
    """Epoch seconds of a start time in ticks since boot: proc(5), starttime."""
    with open("/proc/uptime") as file:
        up_s = float(file.read().split()[0])
    return time.time() - up_s + ticks / os.sysconf("SC_CLK_TCK")
