"""Memory: what is free, what is swapped out, and /dev/shm. Standard library, Python 3.9."""

from __future__ import annotations

import os
import re

from safelaunch.node.checks.answer import failed, ok, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.node.checks.answer import CheckRequest

MEMINFO, SHM = "/proc/meminfo", "/dev/shm"  # noqa: S108 - the folder itself is what is looked at
LEAST_SHARE = 0.1        # of the memory: below it the kernel begins to reclaim and the OOM killer is near
MOST_SWAPPED = 0.1       # of the memory: pages of a training that come back from a disk
LEAST_SHM_GB = 0.25      # a container's default of 64 MB ends NCCL and data loaders (docker run --shm-size)
GB = 1e9


def check_memory(request: CheckRequest, item: str) -> dict[str, Any]:
    """Available memory, and how much is swapped out."""
    with open(MEMINFO) as file:
        return judge_memory(file.read(1 << 16))


def judge_memory(meminfo: str) -> dict[str, Any]:
    """The same of a text of /proc/meminfo: proc(5)."""
    kb = {key: int(value) for key, value in re.findall(r"^(\w+): +(\d{1,15}) kB$", meminfo, re.MULTILINE)}
    total, free = kb.get("MemTotal", 0), kb.get("MemAvailable")
    if not total or free is None:
        return unknown("%s does not say how much memory there is" % MEMINFO)
    swapped = kb.get("SwapTotal", 0) - kb.get("SwapFree", 0)
    facts = {"total_gb": round(total * 1024 / GB, 2), "available_gb": round(free * 1024 / GB, 2),
             "swapped_gb": round(swapped * 1024 / GB, 2)}
    if free < LEAST_SHARE * total:
        return failed("%(available_gb).1f of %(total_gb).1f GB are available" % facts, **facts)
    if swapped > MOST_SWAPPED * total:
        return failed("%(swapped_gb).1f GB are swapped out" % facts, **facts)
    return ok("%(available_gb).1f of %(total_gb).1f GB available" % facts, **facts)


def check_shm(request: CheckRequest, item: str) -> dict[str, Any]:
    """Room in /dev/shm, where NCCL and data loaders exchange data."""
    try:
        room = os.statvfs(SHM)
    except FileNotFoundError:
        return failed("%s is not there" % SHM)
    free_gb = room.f_bavail * room.f_frsize / GB
    facts = {"free_gb": round(free_gb, 3)}
    if not os.access(SHM, os.W_OK):
        return failed("%s cannot be written" % SHM, **facts)
    if not room.f_blocks:
        return ok("%s has no limit" % SHM)
    if free_gb < LEAST_SHM_GB:
        return failed("%.3f GB are free, %.2f are needed" % (free_gb, LEAST_SHM_GB), **facts)
    return ok("%.1f GB free" % free_gb, **facts)
