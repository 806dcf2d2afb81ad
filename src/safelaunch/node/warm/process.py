"""What a process shows of itself to others, and what it has from its parents: for node/warm/parked.py.

Standard library, Python 3.8.
"""

from __future__ import annotations

import os

from safelaunch.node.warm.imports import NotAsCold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict
# What travels begins here.

class ShownWords:
    """The words and the environment of this process as other processes read them (proc(5))."""

    def __init__(self, words: bytes, env: bytes) -> None:
        with open("/proc/self/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        self.parts = []
        for data, first in ((words, 45), (env, 47)):   # arg_start arg_end env_start env_end are fields 48 to 51
            start, end = int(fields[first]), int(fields[first + 1])
            if len(data) > end - start:
                raise NotAsCold("its words or its environment are longer")
            self.parts.append((start, data.ljust(end - start, b"\0")))
        with open("/proc/self/mem", "r+b", buffering=0) as memory:   # whether it can be written at all
            memory.seek(self.parts[0][0])
            byte = memory.read(1)
            memory.seek(self.parts[0][0])
            memory.write(byte)

    def write(self) -> None:
        """Put them there."""
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            for start, data in self.parts:
                memory.seek(start)
                memory.write(data)


def text_block(words: Any) -> bytes:
    """Texts as the kernel keeps them."""
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def inherited() -> Dict[str, Any]:
    """What a process has from its parents, and keeps; enter.py has the same text."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    found: Dict[str, Any] = {name: fields.get(name, "").strip() for name in (
        "Uid", "Gid", "Groups", "SigBlk", "CapEff", "NoNewPrivs", "Seccomp", "Cpus_allowed")}
    # Python itself ignores SIGPIPE and SIGXFSZ.
    found["SigIgn"] = int(fields["SigIgn"], 16) & ~(1 << 12 | 1 << 24)
    found["ns"] = [os.readlink("/proc/self/ns/" + name) for name in ("mnt", "net", "pid", "user", "ipc", "uts")]
    found["root"] = [os.stat("/").st_dev, os.stat("/").st_ino]
    found["nice"] = os.getpriority(os.PRIO_PROCESS, 0)
    return found
