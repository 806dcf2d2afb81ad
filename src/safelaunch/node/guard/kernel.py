"""What a node's kernel said of hardware, memory and disks, for the verdict on a task that ended badly."""

from __future__ import annotations

import os
import time

from safelaunch.node.light import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KMSG = "/dev/kmsg"
KERNEL_READ_S = 0.05   # its buffer is read in 5-20 ms
KERNEL_LINES = 30
# What rules of `why` know of hardware and file systems (why/rules). Of the OOM killer's lines only those count
# that name this job's cgroup: a shared node runs other jobs too.
KERNEL_WORDS = (b"NVRM", b"Xid", b"mlx5", b"I/O error", b"EDAC", b"ardware Error", b"ardware error", b"mce:", b"nfs: ",
                b"NFS: ", b"Lustre", b"GPFS", b"EXT4-fs error", b"XFS (", b"ead-only", b"ink is down", b"ink is Down",
                b"nvidia", b"amdgpu", b"oom-kill:")


def kernel_words(since_s: float) -> list[list[Any]]:
    """[[epoch s, text]]: what this node's kernel said of hardware, memory and disks since then (monotonic seconds).

    Users may read that only where kernel.dmesg_restrict is 0: dmesg(1), kernel's Documentation/ABI/testing/dev-kmsg.
    """
    found = []
    with suppress(OSError, ValueError, IndexError):
        log = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            job = b"/job_%s/" % os.environ.get("SLURM_JOB_ID", "-").encode()   # proctrack/cgroup's folders
            boot, end_s = time.time() - time.monotonic(), time.monotonic() + KERNEL_READ_S
            while time.monotonic() < end_s:
                try:
                    records = os.read(log, 8192)   # one a read; " KEY=value" lines may follow it
                except BlockingIOError:   # that was the last
                    break
                except BrokenPipeError:   # it was overwritten since the last read
                    continue
                if not records:
                    break
                for record in records.split(b"\n"):
                    head, _, text = record.partition(b";")
                    is_other = b"oom-kill:" in text and job not in text
                    if is_other or not any(word in text for word in KERNEL_WORDS) or _is_of_file(text):
                        continue
                    said_s = int(head.split(b",")[2]) / 1e6
                    if said_s >= since_s:
                        found.append([round(boot + said_s, 3), text[:300].decode("utf-8", "replace")])
        finally:
            os.close(log)
    return found[-KERNEL_LINES:]


def _is_of_file(text: bytes) -> bool:
    """Whether it is about a loop device (losetup(8)): a file, such as a container's image, and no disk of this node."""
    words = [word.strip(b"():,") for word in text.split()]
    return any(word[:4] == b"loop" and word[4:].replace(b"p", b"").isdigit() for word in words)
