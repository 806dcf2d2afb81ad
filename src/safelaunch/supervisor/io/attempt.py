"""One attempt's processes on the batch host: srun, apart from the leader, and the log pump.

srun runs in its own session and writes to a file on node-local disk. So neither the leader's death nor a frozen shared
folder reaches the training. What the next leader needs is beside that file.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from safelaunch.guard.io.guardcode import GuardCode
from safelaunch.script.io import standins

PUMP = Path(__file__).parents[2] / "node" / "pump.py"
TAIL_BYTES = 64 << 10
MOST_FILES = 65536
KEEP_MB = 256   # of what was copied: the search for the cause of a failure reads up to some 112 MB in full (logbounds)
PUMP_BUSY = 3   # exit code of a pump that finds another at the same file


_guard_code = GuardCode()
_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)   # as Slurm set it: what the training gets


def raise_limit() -> None:
    """Let this process have a descriptor for each guard: the usual soft limit of 1024 is too low for a thousand."""
    soft, hard = _LIMIT
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft not in (resource.RLIM_INFINITY, wanted) and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def step_argv(local: Path) -> list[str]:
    """What starts an attempt's srun; its arguments follow."""
    return ["bash", str(local / "job.sbatch"), "attempt"]


def step_env(process: AttemptProcess, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of that."""
    soft = "unlimited" if _LIMIT[0] == resource.RLIM_INFINITY else str(_LIMIT[0])
    return {**env, **_guard_code.env(), "SAFELAUNCH_EXIT_FILE": str(process.exit_file),
            "SAFELAUNCH_FILES": soft}   # for `ulimit -S -n`: a preexec_fn would copy this process, 2 ms


@dataclass
class AttemptProcess:
    """An attempt that this host launched; `child` is None when an earlier leader was its parent."""

    local: Path
    number: int
    facts: Mapping[str, Any] = field(default_factory=dict)   # what the leader that launched it wrote down
    child: subprocess.Popen[bytes] | None = None
    pump: subprocess.Popen[bytes] | None = None
    _pump_next_s: float = 0.0
    _inherited_pid: int | None = None   # a process of an attempt that an earlier leader launched; None = not known

    @cached_property
    def stem(self) -> str:
        """Common start of its files' names."""
        return f"attempt-{self.number:04d}"

    @cached_property
    def spool(self) -> Path:
        """Its output on local disk; the pump copies it to the run folder."""
        return self.local / f"{self.stem}.log"

    @cached_property
    def exit_file(self) -> Path:
        """Holds srun's exit code once it has ended; of a step that has waited for its launch it has another name, since
        one that nobody launched ends with a code, too (drill: a leader that died beside one).
        """
        return self.local / str(self.facts.get("exit_file", f"{self.stem}.exit"))

    @property
    def facts_file(self) -> Path:
        """What the next leader needs to know of it."""
        return self.local / f"{self.stem}.json"

    @property
    def running_file(self) -> Path:
        """Tells the batch shell where the exit code will be, if no leader can go on."""
        return self.local / f"{self.stem}.running"

    def sruns(self) -> list[str] | None:
        """A word for each srun that a script has called (node/srun.sh); None: unknown."""
        with contextlib.suppress(OSError, ValueError):
            return (self.local / f"{self.stem}.sruns").read_text().split()
        return None

    def links(self) -> list[dict[str, Any]]:
        """What a script has asked to go on with (node/standin)."""
        return standins.read_links(self.local, self.number)

    @property
    def system_folder(self) -> Path:
        """The nodes' kernel lines, a file for each node."""
        return self.local / self.stem / "system"

    @cached_property
    def pump_file(self) -> Path:
        """Holds the pump's pid."""
        return self.local / f"{self.stem}.pump"

    @classmethod
    def launch(cls, local: Path, number: int, arguments: Sequence[str], env: Mapping[str, str],
               facts: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> AttemptProcess:
        """Start it. The facts are on disk before the process is: a leader that dies in between leaves no orphan.

        `own`: of a user's own script, what the stand-ins of Slurm's commands know.
        """
        process = cls(local, number, facts)
        if own is not None:
            standins.put(local, own)
        process.announce()
        descriptor = os.open(process.spool, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            process.child = subprocess.Popen(
                [*step_argv(local), *arguments], env=step_env(process, env), cwd=env.get("SAFELAUNCH_CWD", "/"),
                stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True)
        finally:
            os.close(descriptor)
        return process

    def announce(self) -> None:
        """Leave what the next leader and the batch shell need of it."""
        self.facts_file.write_text(json.dumps(self.facts))
        self.running_file.write_text(str(self.exit_file) + "\n")

    @classmethod
    def adopt(cls, local: Path, number: int) -> AttemptProcess | None:
        """The attempt as an earlier leader on this host left it; None when it never started here."""
        process = cls(local, number)
        try:
            process.facts = json.loads(process.facts_file.read_text())
        except (OSError, ValueError):
            return None
        return process if process.spool.exists() else None

    def poll(self) -> int | None:
        """srun's exit code; None while it runs. 255 when it was killed without leaving one."""
        if self.child is not None:
            self.child.poll()   # reap
        with contextlib.suppress(OSError, ValueError):
            return int(self.exit_file.read_text())
        if self.child is not None and self.child.returncode is not None:
            return self.child.returncode if self.child.returncode >= 0 else 255   # on a full disk there is no file
        if self.child is None and not self._lives():
            with contextlib.suppress(OSError, ValueError):
                return int(self.exit_file.read_text())   # it ended between the two checks
            return 255
        return None

    def _lives(self) -> bool:
        """Whether a process that an earlier leader started is still there, known by its own environment.

        Called at each tick: it reads all processes of the node only when the known one is gone.
        """
        if self._inherited_pid is None or not self._is_of_it(self._inherited_pid):
            pids = (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())
            self._inherited_pid = next(filter(self._is_of_it, pids), None)
        return self._inherited_pid is not None

    def _is_of_it(self, pid: int) -> bool:
        """Whether a process belongs to this attempt."""
        with contextlib.suppress(OSError):
            mark = f"SAFELAUNCH_EXIT_FILE={self.exit_file}".encode()
            return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False

    def kill(self) -> None:
        """End srun and its wrapper, if they are still there and this leader started them."""
        if self.child is not None and self.child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)

    def size(self) -> int:
        """Bytes of output so far."""
        with contextlib.suppress(OSError):
            return self.spool.stat().st_size
        return 0

    def forget_before(self, end: int) -> list[str]:
        """The command that gives the blocks of its output before this byte back to the local disk."""
        return ["fallocate", "--punch-hole", "--offset=0", f"--length={end}", str(self.spool)]

    def tail(self, length: int = TAIL_BYTES) -> bytes:
        """The last bytes of its output."""
        with contextlib.suppress(OSError), self.spool.open("rb") as spool:
            size = spool.seek(0, os.SEEK_END)
            spool.seek(max(0, size - length))
            return spool.read(length)
        return b""

    def read(self, start: int, length: int) -> bytes:
        """A piece of its output."""
        with contextlib.suppress(OSError), self.spool.open("rb") as spool:
            spool.seek(start)
            return spool.read(length)
        return b""

    def keep_pump(self, target: str, now_s: float) -> None:
        """See that a pump runs once there is something to copy: one that was killed goes on where it was."""
        if self.pump is not None and self.pump.poll() is None:
            return
        if self._pump_pid() is not None:
            return   # an earlier leader's pump still runs
        if self.pump is None and not self.size():
            return   # its start takes 40 ms of processor time
        if self.pump is not None and self.pump.returncode == PUMP_BUSY and now_s < self._pump_next_s:
            return   # so does this one, and has not written its pid yet
        self._pump_next_s = now_s + 2.0
        with (self.local / "pump.out").open("ab") as talk:
            self.pump = subprocess.Popen(
                [sys.executable, "-I", "-S", str(PUMP), "--spool", str(self.spool), "--target", target,
                 "--pid-file", str(self.pump_file), "--keep-mb", str(KEEP_MB)],
                stdin=subprocess.DEVNULL, stdout=talk, stderr=talk, cwd="/", start_new_session=True)

    def finish_pump(self) -> bool:
        """Ask the pump to copy the rest and end; True where it is this leader's own, which has an exit code."""
        # Ours may still wait for an earlier leader's pump to release the file: it must be told too, or it lives for
        # ever.
        own = self.pump.pid if self.pump is not None and self.pump.poll() is None else None
        for pid in {own, self._pump_pid()} - {None}:
            assert pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return own is not None

    def copy_rest(self, target: str) -> list[str]:
        """The command that copies what is left, and ends with 0 once all is there."""
        return [sys.executable, "-I", "-S", str(PUMP), "--spool", str(self.spool), "--target", target, "--once"]

    def _pump_pid(self) -> int | None:
        """The living pump of this spool, whoever started it; known by its command line."""
        with contextlib.suppress(OSError, ValueError):
            pid = int(self.pump_file.read_text())
            if str(self.spool).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
        return None

    def forget(self) -> None:
        """The attempt is over: the batch shell need not look for it any more."""
        with contextlib.suppress(OSError):
            self.running_file.unlink()
