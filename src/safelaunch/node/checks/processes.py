"""Processes: load, those that sleep in D state, zombies, and the limits of this user.

Standard library, Python 3.9.
"""

from __future__ import annotations

import os
import resource
import time

from safelaunch.node import proctable
from safelaunch.node.checks.answer import failed, ok, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from safelaunch.node.checks.answer import CheckRequest

LOADAVG = "/proc/loadavg"
MOST_LOAD = 2.0         # a core: above it every second process that could run waits
BETWEEN_S = 1.0         # D state of ordinary I/O is over by then
MOST_ZOMBIES = 200      # some are always about to be collected; hundreds tell of a parent that collects none
SHOWN = 8
LEAST_FILES = 1024      # the usual default; data loaders and NCCL open hundreds a rank
LEAST_PROCESSES = 4096  # threads count: a rank with its loaders, NCCL and OpenMP has some hundred
_LIMITS = {"files": resource.RLIMIT_NOFILE, "processes": resource.RLIMIT_NPROC, "memlock": resource.RLIMIT_MEMLOCK,
           "stack": resource.RLIMIT_STACK, "core": resource.RLIMIT_CORE, "memory": resource.RLIMIT_AS}


def check_load(request: CheckRequest, item: str) -> dict[str, Any]:
    """How many processes run or want to, a core."""
    with open(LOADAVG) as file:
        return judge_load(file.read(200), os.cpu_count() or 0)


def judge_load(text: str, cores: int) -> dict[str, Any]:
    """The same of a text of /proc/loadavg: proc(5). Its first number is the mean of a minute."""
    try:
        load = float(text.split()[0])
    except (ValueError, IndexError):
        return unknown("%s is not understood" % LOADAVG)
    if not cores or load != load:
        return unknown("nobody says how many cores there are" if not cores else "%s is not understood" % LOADAVG)
    facts = {"load": load, "cores": cores}
    words = "load %.1f on %d cores" % (load, cores)
    return failed(words, **facts) if load > MOST_LOAD * cores else ok(words, **facts)


def check_stuck(request: CheckRequest, item: str) -> dict[str, Any]:
    """Processes that sleep in D state at two looks, and dead ones that nobody collects."""
    before = proctable.read_table()
    time.sleep(BETWEEN_S)
    return judge_stuck(before, proctable.read_table())


def judge_stuck(before: Mapping[int, proctable.Process], after: Mapping[int, proctable.Process]) -> dict[str, Any]:
    """The same of two looks at a process table."""
    if not after:
        return unknown("/proc shows no process")
    last = [one for pid, one in after.items() if pid in before and one.started == before[pid].started]
    stuck = [one for one in last if one.state == "D" and before[one.pid].state == "D"
             and one.ticks == before[one.pid].ticks]
    dead = [one for one in last if one.state == "Z" and before[one.pid].state == "Z"]
    facts = {"stuck": [[one.pid, one.comm] for one in stuck[:SHOWN]], "zombies": len(dead), "processes": len(after)}
    if stuck:
        return failed("%d in D state: %s" % (len(stuck), _named(stuck)), **facts)
    if len(dead) > MOST_ZOMBIES:
        return failed("%d zombies that nobody collects: %s" % (len(dead), _named(dead)), **facts)
    return ok("none of %d processes is stuck" % len(after), **facts)


def _named(processes: list[proctable.Process]) -> str:
    named = ", ".join("%s (pid %d)" % (one.comm, one.pid) for one in processes[:SHOWN])
    return named + (" and %d more" % (len(processes) - SHOWN) if len(processes) > SHOWN else "")


def check_limits(request: CheckRequest, item: str) -> dict[str, Any]:
    """The soft limits of this shell or job; null = unlimited."""
    facts = {name: None if soft == resource.RLIM_INFINITY else soft for name, number in _LIMITS.items()
             for soft in [resource.getrlimit(number)[0]]}
    small = ["%s %d, %d are needed" % (name, value, least)
             for name, least in (("files", LEAST_FILES), ("processes", LEAST_PROCESSES))
             for value in [facts[name]] if value is not None and value < least]
    if small:
        return failed("ulimit: " + "; ".join(small), **facts)
    files, processes = (facts[name] if facts[name] is not None else "unlimited" for name in ("files", "processes"))
    return ok("files %s, processes %s" % (files, processes), **facts)
