"""One UTS namespace per machine of a sandbox: its host name, and the one sure mark of all of its processes.

A machine may have a network namespace of its own as well, and files that lie over others there.

The namespace is pinned by a bind mount on a file. So its inode number cannot be given to another namespace while the
sandbox lives (the kernel reuses numbers at once). Every process of a machine can be told by it, job processes and
orphans included, without a list of pids that could go stale.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from safelaunch.errors import SandboxError
from safelaunch.sandbox import cgroups
from safelaunch.sandbox.command import run_command

SIGNAL_TIMEOUT_S = 60.0   # it takes milliseconds, and more on a machine that stands still
# Their death or silence must come first: a slurmstepd that outlives its task by a millisecond reports it to srun,
# which no machine without power does.
DAEMONS = ("slurmd", "slurmstepd")
# By a signal or a tracer, or gone.
STANDING_STILL = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD, "")
# Each mount namespace ends with the processes in it, so there is nothing to pin, and nothing that could be left behind.
COVER_PAIRS = """
while [ "$1" != -- ]; do
  case $1 in
  over) mount -t overlay -o "lowerdir=$2:$3" overlay "$3" ;;
  for) mount --bind "$2" "$3" ;;
  esac || exit 71
  shift 3
done
shift
exec "$@"
"""
COVER = ("unshare", "--mount", "--propagation", "slave", "--", "sh", "-c", COVER_PAIRS, "cover")
Pairs = tuple[tuple[Path, Path], ...]


@dataclass(frozen=True)
class Namespace:
    """A machine of the sandbox; `file` is where its UTS namespace is pinned, `net` where its network namespace is.

    `covers` are pairs of folders: on this machine the first lies over the second. What is in the one below shows
    through, except for what a whiteout above hides. `places` are pairs of files or of folders: the first stands in
    place of the second. `freezer` is the control group of the machine's jobs.
    """

    file: Path
    net: Path | None = None
    covers: Pairs = ()
    places: Pairs = ()
    freezer: Path | None = None

    def create(self, hostname: str) -> None:
        """Pin a fresh namespace with this host name; a pinned one is left as it is."""
        if self.is_pinned():
            return
        self.file.parent.mkdir(exist_ok=True)
        self.file.touch()
        run_command(
            ["unshare", f"--uts={self.file}", "hostname", hostname],
            hint="A sandbox needs CAP_SYS_ADMIN; in a container: --privileged or --cap-add SYS_ADMIN",
        )

    def remove(self) -> None:
        """Unpin the namespace; it ends with its last process."""
        while self.is_pinned():
            run_command(["umount", str(self.file)])
        self.file.unlink(missing_ok=True)

    def is_pinned(self) -> bool:
        """The file is a namespace and not an empty file on a disk."""
        try:
            return self.file.stat().st_dev == Path("/proc/self/ns/uts").stat().st_dev
        except FileNotFoundError:
            return False

    def enter(self, argv: Sequence[str]) -> list[str]:
        """`argv` so that it runs on this machine; all that comes before executes in place, so the pid is its own."""
        network = [f"--net={self.net}"] if self.net else []
        words = [word for kind, pairs in (("over", self.covers), ("for", self.places))
                 for above, below in pairs for word in (kind, str(above), str(below))]
        covers = [*COVER, *words, "--"] if words else []
        return ["nsenter", f"--uts={self.file}", *network, "--", *covers, *argv]

    def is_listening(self, port: int) -> bool:
        """Something on this machine's network listens on the TCP port; seen without a connection that it would log."""
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            if not Path(table).exists():
                continue  # no IPv6
            text = run_command(["nsenter", f"--net={self.net}", "cat", table]) if self.net else Path(table).read_text()
            rows = [line.split() for line in text.splitlines()[1:]]
            if any(int(row[1].rpartition(":")[2], 16) == port and row[3] == "0A" for row in rows):
                return True
        return False

    def pids(self) -> list[int]:
        """Every live process of this machine, Slurm's daemons first; zombies have no namespace and do not count."""
        if not self.is_pinned():
            return []
        wanted = self.file.stat().st_ino
        mine = [pid for pid in psutil.pids() if _uts_inode(pid) == wanted]
        return sorted(mine, key=lambda pid: command_name(pid) not in DAEMONS)

    def kill(self, timeout_s: float = SIGNAL_TIMEOUT_S, spare: Callable[[int], bool] = lambda pid: False) -> None:
        """SIGKILL all of it at once, again and again until nothing is left; SandboxError names what cannot die."""
        left = self._signal_until(signal.SIGKILL, lambda pid: spare(pid), timeout_s)
        if left:
            raise SandboxError(f"{self.file.name}: still there {timeout_s:.0f} s after SIGKILL: {describe(left)}")

    def stop(self, timeout_s: float = SIGNAL_TIMEOUT_S) -> None:
        """SIGSTOP all of it: nothing is said to the world any more, no FIN, no RST."""
        left = self._signal_until(signal.SIGSTOP, is_stopped, timeout_s)
        if left:
            raise SandboxError(f"{self.file.name}: still running {timeout_s:.0f} s after SIGSTOP: {describe(left)}")

    def cut_power(self, timeout_s: float = SIGNAL_TIMEOUT_S) -> None:
        """SIGKILL all of it before any of it can say that the rest is gone.

        All is stopped before the first process dies. Else, under load, a leader sees its srun die during the pass of
        kills. Or srun's second process has a step on a healthy node cancelled (both seen). No machine without power
        does that. Children die before their parents. The kernel sends SIGHUP and SIGCONT to a stopped process group
        that a kill orphans (setpgid(2)), and its guard would live to report that.
        """
        _signal_all(self.pids(), signal.SIGSTOP)
        self._signal_until(signal.SIGSTOP, _is_speechless, timeout_s)
        _signal_all(sorted(self.pids(), key=_begun, reverse=True), signal.SIGKILL)
        self.kill(timeout_s)

    def wake(self) -> bool:
        """SIGCONT to all that is stopped; true if something was."""
        stopped = [pid for pid in self.pids() if is_stopped(pid)]
        _signal_all(stopped, signal.SIGCONT)
        return bool(stopped)

    def _signal_until(self, number: signal.Signals, is_done: Callable[[int], bool], timeout_s: float) -> list[int]:
        deadline = time.monotonic() + timeout_s
        while True:
            left = [pid for pid in self.pids() if not is_done(pid)]
            if not left or time.monotonic() > deadline:
                return left
            _signal_all(left, number)
            if number == signal.SIGKILL and self.freezer:
                # A suspended job: what is frozen is not even killed, and what is killed does not run once it is thawed.
                cgroups.thaw(self.freezer)
            time.sleep(0.002)


def can_cover() -> bool:
    """Whether files can lie over others on a machine: not in a chroot whose root is no mount (unshare(1): EINVAL)."""
    return any(line.split()[4] == "/" for line in Path("/proc/self/mountinfo").read_text().splitlines())


def share_mounts(folder: Path) -> None:
    """Let what is mounted below the folder later on reach machines with covers too; said twice it does nothing."""
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    if str(folder) not in mounts:
        run_command(["mount", "--rbind", str(folder), str(folder)])
        run_command(["mount", "--make-shared", str(folder)])


def run_all(
    commands: Mapping[str, Sequence[str]], log_dir: Path, env: Mapping[str, str], timeout_s: float,
    files: Sequence[int] = (),
) -> None:
    """Run daemons that put themselves into the background, all at once; SandboxError with what a failed one said.

    They inherit the open `files`.
    """
    started: dict[str, subprocess.Popen[bytes]] = {}
    for name, argv in commands.items():
        with (log_dir / f"{name}.start").open("wb") as said:
            started[name] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/", env=dict(env),
                start_new_session=True, pass_fds=files,
            )
    deadline = time.monotonic() + timeout_s
    for name, process in started.items():
        try:
            code: int | None = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            said_text = (log_dir / f"{name}.start").read_text(errors="replace").strip()
            how = f"did not come up within {timeout_s:.0f} s" if code is None else f"ended with exit code {code}"
            raise SandboxError(f"{name} {how} ({' '.join(commands[name])}): {said_text}")


def command_name(pid: int) -> str:
    """The kernel's short name of a process, "" when it is gone.

    From Slurm 23.11 on, `scontrol reconfigure` has daemons execute themselves anew, and Debian's are slurmd-wlm then.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).name().removesuffix("-wlm")
    return ""


def is_stopped(pid: int) -> bool:
    """The process is stopped by a signal or a tracer, or gone."""
    return state_of(pid) in STANDING_STILL


def _is_speechless(pid: int) -> bool:
    """Stopped, or asleep on a dead mount: it stops as soon as it wakes, and a kill ends it there too."""
    return state_of(pid) in (*STANDING_STILL, psutil.STATUS_DISK_SLEEP)


def _begun(pid: int) -> tuple[float, int]:
    """Sorts processes by their start: no child starts before its parent."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).create_time(), pid
    return 0.0, pid


def state_of(pid: int) -> str:
    """What psutil calls the state of a process, "" when it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status()
    return ""


def describe(pids: Sequence[int]) -> str:
    """Processes as `name[pid] state`, for an error message."""
    return ", ".join(f"{command_name(pid)}[{pid}] {state_of(pid)}" for pid in pids)


def _uts_inode(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/uts").st_ino  # noqa: PTH116 - a Path would double the time of a pass
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
