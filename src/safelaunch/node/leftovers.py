"""Who is on a node that should not be: ranks of earlier attempts of the run, strangers on the GPUs of the job.

Ours are ended, where that is asked for: by a handle of the very process (pidfd) that was looked at, after its mark was
read again. Others' are reported with pid, user and memory, and left alone. Travels with node.collect as text: standard
library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from safelaunch.node import children, proctable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Optional

GRACE_S = 2.0      # between TERM and KILL, as guards give what a launcher leaves behind
KILLED_S = 1.0     # a KILL takes milliseconds, but in D state
MOST = 64
DESCRIBE_S = 0.5
OURS, OWN, OTHERS, NOBODY = "ours", "own", "others", "nobody"   # of this run, of this user, of other users, of no pid


class Claim:
    """What is ours alone: `run`'s attempts before number `attempt`, on `node`. Later ones are somebody else's matter:
    a supervisor that was superseded must not end its successor's ranks.
    """

    def __init__(self, run: str, attempt: int, node: str) -> None:
        self.run, self.attempt, self.node = run, attempt, node

    def holds(self, env: Mapping[str, str]) -> bool:
        """Whether a process with this environment was left behind by an earlier attempt."""
        run, _, rest = env.get("SAFELAUNCH_MARK", "").partition(".")
        job, _, number = rest.rpartition(".")
        if env.get("SLURMD_NODENAME", self.node) != self.node:
            return False
        if env.get("SLURM_JOB_ID", job) != job:
            return False   # of a job that the script has submitted, which inherits the mark
        return bool(self.run) and run == self.run and number.isdigit() and int(number) < self.attempt


def find(table: Mapping[int, proctable.Process], members: Iterable[int], claim: Claim,
         gpus: Sequence[Mapping[str, Any]], until_s: float) -> list[dict[str, Any]]:
    """Rows of what is left: {"pid", "user", "whose", "state", "name", "cmd", "job", "mark", "rss_mb", "gpus",
    "gpu_mb", "ended", "why"}; `table` with its environments (proctable.find_members), `gpus` as devices reads them.
    """
    known = set(members)
    rows = {pid: _row(process, OURS) for pid, process in table.items()
            if claim.holds(process.env or {}) and proctable.may_be_rank(process)}
    for gpu in gpus:
        for pid, held_mb in zip(gpu["pids"], gpu["held_mb"]):  # noqa: B905 - 3.10's
            if pid in known:
                continue
            whose = OWN if proctable.owner(pid) == os.getuid() else OTHERS
            row = rows.setdefault(pid, _row(table[pid], whose) if pid in table else _absent(pid))
            row["gpus"].append(gpu["index"])
            row["gpu_mb"] = (row["gpu_mb"] or 0) + (held_mb or 0)
    shown = list(rows.values())[:MOST]
    said, _ = children.walk([row["pid"] for row in shown], _describe, DESCRIBE_S, until_s)
    for index, words in said.items():
        shown[index].update(words)
    return shown


def _describe(pid: int) -> dict[str, Any]:
    """Whose it is by name, and its command line: a directory server and a memory lock may be waited for."""
    import pwd

    words: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        words["user"] = str(os.stat("/proc/%d" % pid).st_uid)
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words["cmd"] = file.read(4096).replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    with contextlib.suppress(KeyError, OSError):
        words["user"] = pwd.getpwuid(int(words["user"])).pw_name
    return words


def _row(process: proctable.Process, whose: str) -> dict[str, Any]:
    env = process.env or {}
    return {"pid": process.pid, "user": str(proctable.owner(process.pid)), "whose": whose, "state": process.state,
            "name": process.comm, "cmd": "", "job": env.get("SLURM_JOB_ID", ""),
            "mark": env.get("SAFELAUNCH_MARK", ""), "rss_mb": _rss_mb(process.pid), "gpus": [], "gpu_mb": None,
            "ended": None, "why": "sleeps in D state" if process.state == "D" else ""}


def _absent(pid: int) -> dict[str, Any]:
    return {"pid": pid, "user": "", "whose": NOBODY, "state": "", "name": "", "cmd": "", "job": "", "mark": "",
            "rss_mb": None, "gpus": [], "gpu_mb": None, "ended": None,
            "why": "no process of this number is to be seen: it lives in a container, or has died and the driver has "
                   "not let its memory go"}


def _rss_mb(pid: int) -> Optional[int]:
    try:
        with open("/proc/%d/statm" % pid) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    except (OSError, IndexError, ValueError):
        return None


def end_ours(rows: Sequence[dict[str, Any]], table: Mapping[int, proctable.Process], claim: Claim,
             until_s: float) -> None:
    """End what is ours: TERM, then KILL; each row's `ended` says whether it has gone, `why` why it has not."""
    handles = {}
    for row in rows:
        if row["whose"] == OURS:
            fd = _handle(table[row["pid"]], claim)
            row["ended"] = fd is None   # it has gone by itself, or its number is another's by now
            if fd is not None:
                handles[fd] = row
    _send(handles, signal.SIGTERM)
    _await(handles, min(until_s, time.monotonic() + GRACE_S))
    _send(handles, signal.SIGKILL)
    _await(handles, min(until_s, time.monotonic() + KILLED_S))
    for fd, row in handles.items():
        row["ended"] = _has_ended(fd)
        if not row["ended"]:
            row["state"] = _state(row["pid"]) or row["state"]
            row["why"] = "no KILL ends it: it sleeps in state %s" % row["state"]
        os.close(fd)


def _handle(process: proctable.Process, claim: Claim) -> Optional[int]:
    """A pidfd of this very process; None where it is no more. The mark is read again after the handle was taken. By it,
    or by its start time, a number is told that was given to another process in between.
    """
    try:
        fd = os.pidfd_open(process.pid)
    except (OSError, AttributeError):
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        again = proctable.read_stat("/proc/%d/stat" % process.pid)
        env = proctable.read_words(process.pid).get("env") or {}
        if again.started == process.started and claim.holds(env) and proctable.owner(process.pid) == os.getuid():
            return fd
    os.close(fd)
    return None


def _send(handles: Mapping[int, Mapping[str, Any]], number: int) -> None:
    for fd in handles:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(fd, number)


def _await(handles: Mapping[int, Mapping[str, Any]], until_s: float) -> None:
    while not all(map(_has_ended, handles)) and time.monotonic() < until_s:
        time.sleep(0.02)


def _has_ended(fd: int) -> bool:
    """A pidfd can be read once its process has ended (pidfd_open(2)), zombie or not."""
    import select

    return bool(select.select([fd], [], [], 0)[0])


def _state(pid: int) -> str:
    try:
        return proctable.read_stat("/proc/%d/stat" % pid).state
    except (OSError, ValueError, IndexError):
        return ""
