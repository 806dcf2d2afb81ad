"""The end of a job that nobody leads: a note that it was no person, a free way for the next job, and the cancel."""

from __future__ import annotations

import json
import os
import time

from safelaunch.node.guard.fence import NO_SQUEUE, is_to_be_cancelled
from safelaunch.node.guard.processes import restore_signals
from safelaunch.node.light import signal, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SQUEUE_S = 15.0        # for the question whether Slurm goes on running the job; less than the guards' stagger


def cancel_orphan(job: str, node: str, record: str, in_child: Callable[[], None]) -> int:
    """The pid of a child that does it; 0 = no child could be made."""
    try:
        pid = os.fork()
    except OSError:
        return 0
    if pid == 0:
        try:
            in_child()
            restore_signals()
            signal.set_wakeup_fd(-1)
            _cancel(job, node, os.path.join(os.path.dirname(record), "..", ".."))
        finally:
            os._exit(1)
    return pid


def _cancel(job: str, node: str, folder: str) -> None:
    """Cancel the job where Slurm goes on running it.

    The next job waits for this one's end, and this one hangs in COMPLETING while a node of it is silent, for 440 s
    (measured). Its name keeps the next job waiting until the cancel; the next supervisor waits for all leases.
    """
    if not is_to_be_cancelled(*_ask_squeue(job)):
        return
    leave_word(os.path.join(folder, "control", "orphaned-" + job),
               "%s %s\n" % (node, time.strftime("%Y-%m-%dT%H:%M:%S%z")))
    with suppress(OSError, ValueError, LookupError, TypeError), open(os.path.join(folder, "pulse.json")) as pulse:
        os.spawnvp(os.P_WAIT, "scontrol", [  # noqa: S606
            "scontrol", "update", "JobId=%d" % int(json.load(pulse)["successor"]), "Dependency=singleton"])
    os.execvp("scancel", ["scancel", job])  # noqa: S606


def _ask_squeue(job: str) -> tuple[int | None, bytes]:
    """The exit code, None without an answer, and the job's state."""
    import subprocess  # 5 ms, and 2 MB for as long as the guard lives
    try:
        told = subprocess.run(["squeue", "--noheader", "--format=%T", "--jobs=" + job],
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=SQUEUE_S, check=False)
    except FileNotFoundError:
        return NO_SQUEUE, b""
    except (OSError, subprocess.SubprocessError):
        return None, b""
    return told.returncode, told.stdout


def leave_word(path: str, text: str) -> None:
    """Make a file with this text, durably. It replaces what another user put there: that may be a link."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        word = os.open(path, flags, 0o600)
    except FileExistsError:
        os.unlink(path)
        word = os.open(path, flags, 0o600)
    os.write(word, text.encode())
    os.fsync(word)
    os.close(word)
