"""What a node's hardware and its other users do just now, beside a training; one JSON line on stdout, exit code 0.

A line of the form of node/checks/main.py: its rows are figures, their facts {"value", "unit"}. What a node does not
have, or may not be read, has no row. Standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import glob
import os
import time

from safelaunch.node import children
from safelaunch.node.checks import smi
from safelaunch.node.checks.answer import ok, print_answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

PROC, SYS = "/proc", "/sys"
BETWEEN_S = 1.0      # between two looks at counters
SMI_S = 10.0
MOST_PROCESSES = 100_000
SLOWDOWNS = frozenset(("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"))
# Errors that a link counts since it is up: kernel.org, ABI/stable/sysfs-class-infiniband; without discards and waits.
IB_ERRORS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "local_link_integrity_errors")


def look() -> list[dict[str, Any]]:
    """The rows of this node."""
    before, begin_s = _counters(), time.monotonic()
    gpus = _gpus()
    time.sleep(max(0.0, begin_s + BETWEEN_S - time.monotonic()))
    after, took_s = _counters(), time.monotonic() - begin_s
    found: dict[str, tuple[Optional[float], str]] = {
        "steal": (_share(before, after, "steal"), "%"),
        "foreign_cpu": (_rate(before, after, "foreign", took_s), "cores"),
        "cpu_throttled": (_rate(before, after, "throttled", took_s), "times/s"),
        "cpu_clock": (_mean(_numbers("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq")) / 1e3, "MHz"),
        "temperature": (max(_numbers("class/thermal/thermal_zone*/temp"), default=0.0) / 1e3, "C"),
        "nic_errors": (_sum("class/net/*/statistics/[rt]x_errors"), "since boot"),
        "ib_errors": (_sum(*("class/infiniband/*/ports/*/counters/" + name for name in IB_ERRORS)), "since it is up"),
        **gpus}
    return [{"name": name, "item": "", "took_s": 0.0, **ok("%.4g %s" % (value, unit), value=value, unit=unit)}
            for name, (value, unit) in found.items() if value is not None and (value or name not in _NEVER_ZERO)]


_NEVER_ZERO = frozenset(("cpu_clock", "temperature", "gpu_clock", "gpu_temperature"))


def _counters() -> dict[str, float]:
    """Those whose growth says something; a missing one is not there."""
    found: dict[str, float] = {}
    with contextlib.suppress(OSError, ValueError), open(PROC + "/stat") as file:
        fields = [float(word) for word in file.readline().split()[1:9]]   # proc(5): user … steal
        if len(fields) == 8:
            found["steal"], found["all"] = fields[7], sum(fields)
    ticks, me = float(os.sysconf("SC_CLK_TCK")), os.geteuid()
    with contextlib.suppress(OSError):
        found["foreign"] = sum(_cpu_ticks(path) for path in _others(me)) / ticks
    throttled = _numbers("devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
    if throttled:
        found["throttled"] = sum(throttled)
    return found


def _others(me: int) -> list[str]:
    """Folders of processes of other users, daemons of the system among them."""
    found = []
    for name in os.listdir(PROC)[:MOST_PROCESSES]:
        if name.isdigit():
            try:
                if os.stat(PROC + "/" + name).st_uid != me:
                    found.append(PROC + "/" + name)
            except OSError:   # it has ended
                continue
    return found


def _cpu_ticks(folder: str) -> float:
    """Of a process: proc(5), utime and stime, behind the name in brackets, which may hold anything."""
    try:
        with open(folder + "/stat") as file:
            words = file.read(4096).rpartition(")")[2].split()
        return float(words[11]) + float(words[12])
    except (OSError, IndexError, ValueError):
        return 0.0


def _share(before: dict[str, float], after: dict[str, float], key: str) -> Optional[float]:
    if key not in before or key not in after:
        return None
    whole = after["all"] - before["all"]
    return 100 * max(0.0, after[key] - before[key]) / whole if whole > 0 else None


def _rate(before: dict[str, float], after: dict[str, float], key: str, took_s: float) -> Optional[float]:
    """A process that has ended takes its time with it: never below 0."""
    return max(0.0, after[key] - before[key]) / took_s if key in before and key in after else None


def _numbers(pattern: str) -> list[float]:
    found = []
    for path in glob.glob(SYS + "/" + pattern):
        try:
            with open(path) as file:
                found.append(float(file.read(64)))
        except (OSError, ValueError):   # some sensors answer with an error
            continue
    return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _sum(*patterns: str) -> Optional[float]:
    found = [number for pattern in patterns for number in _numbers(pattern)]
    return sum(found) if found else None


def _gpus() -> dict[str, tuple[Optional[float], str]]:
    """The slowest clock, the hottest GPU, and how many are slowed by heat or power; nothing where there is no GPU."""
    asked = children.run_all([children.Task("smi", ["nvidia-smi", "-q", "-x"], SMI_S)], 1,
                             time.monotonic() + SMI_S)["smi"]
    told = smi.parse_log(asked.text) if asked.text and not asked.late else None
    if told is None or not told["gpus"]:
        return {}
    clocks = [gpu["sm_mhz"] for gpu in told["gpus"] if gpu["sm_mhz"] is not None]
    heat = [gpu["temp_c"] for gpu in told["gpus"] if gpu["temp_c"] is not None]
    slowed = sum(not SLOWDOWNS.isdisjoint(gpu["slowed_by"] or ()) for gpu in told["gpus"])
    return {"gpu_clock": (float(min(clocks, default=0)), "MHz"), "gpu_temperature": (float(max(heat, default=0)), "C"),
            "gpu_slowed": (float(slowed), "GPUs")}


def main(text: str) -> int:
    """Print the answer; `text` is a JSON object with the node's name."""
    return print_answer(text, "condition", lambda words: None, lambda _, told: told.update(checks=look()))
