"""The processes of a node: whose descendants they are, who handles a signal, and who carries a mark."""

from __future__ import annotations

import os
import time
from errno import ENOENT

from safelaunch.node.host import short_host
from safelaunch.node.light import signal, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE = 36, 4   # prctl(2)


def is_told_alone(job: str, path: str = "/proc/self/cgroup") -> bool:
    """Whether Slurm signals a task's own process only: it does where it tracks processes by cgroups.

    proctrack/cgroup signals the children of slurmstepd, and others with KILL only (22.05, measured). From 23.02 on,
    with SignalChildrenProcesses=yes in cgroup.conf(5), it signals all of them: a rank then gets it twice. A step's
    group is in v1's freezer or in v2, whose line names no controller (cgroups(7)).
    """
    with suppress(OSError, ValueError), open(path) as lines:
        for line in lines if job else ():
            _, controllers, group = line.split(":", 2)
            if controllers in ("freezer", "") and "/job_%s/step_" % job in group:
                return True
    return False


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans. Call it before the launcher starts, which can leave
    something at once.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def prctl(option: int, value: int) -> None:
    """prctl(2). ctypes stands on `_ctypes`; importing ctypes itself takes 3 ms of every restart."""
    words = (option, value, 0, 0, 0)
    try:
        native: Any = __import__("_ctypes")
        number = type("number", (native._SimpleCData,), {"_type_": "i"})
        function = type("function", (native.CFuncPtr,), {"_flags_": native.FUNCFLAG_CDECL, "_restype_": number})
        function(native.dlsym(native.dlopen(None, 0), "prctl"))(*words)
    except Exception:  # noqa: BLE001 - what another Python has instead is unknown; without libffi there is nothing
        import ctypes

        ctypes.CDLL(None).prctl(*words)


def restore_signals() -> None:
    """Restore what Python ignores, and what a shell ignores in its background: exec would keep it ignored."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def exit_of(status: int) -> tuple[int, int | None]:
    """(exit code as a shell gives it, signal or None) of a wait status."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status), os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def end_by(number: int) -> None:
    """End this process by a signal, as its launcher has ended, without a core file. Returns where that cannot be."""
    with suppress(Exception):
        prctl(PR_SET_DUMPABLE, 0)   # core(5): of a core that goes to a program RLIMIT_CORE keeps nothing back
    with suppress(OSError, ValueError):   # of SIGKILL
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)


def find_program(name: str, env: Mapping[str, str]) -> str:
    """Where slurmstepd finds a task's program, which is then its first argument, too (22.05, measured)."""
    if name.startswith("."):
        return os.getcwd() + "/" + name
    for folder in () if name.startswith("/") else env.get("PATH", "").split(":"):
        path = folder + "/" + name
        if folder and os.path.exists(path) and not os.path.isdir(path):
            return path
    return name


def why_not_started(path: str, error: OSError) -> str:
    """slurmstepd's words on a program that execve(2) refuses; its exit code is the number of the error."""
    with suppress(OSError), open(path, "rb") as script:
        first = script.readline(256)
        if error.errno == ENOENT and first[:2] == b"#!":
            path = "bad interpreter(%s)" % os.fsdecode(b"".join(first[2:].split()[:1]))
    return "slurmstepd-%s: error: execve(): %s: %s\n" % (
        os.environ.get("SLURMD_NODENAME", short_host()), path, error.strerror)


def processes() -> dict[int, tuple[str, int]]:
    """pid → (letter of its state, parent's pid) of every process of this node."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                fd = os.open("/proc/" + name + "/stat", os.O_RDONLY)   # open() takes 13 us a process, this 9
                try:
                    words = os.read(fd, 1024).rpartition(b")")[2].split(None, 2)
                finally:
                    os.close(fd)
                table[int(name)] = (words[0].decode(), int(words[1]))
    return table


def descendants(root: int) -> list[int]:
    """Pids of all living descendants of `root`, parents first."""
    table = processes()
    children: dict[int, list[int]] = {}
    for pid, (_, parent) in table.items():
        children.setdefault(parent, []).append(pid)
    found, todo = [], [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            todo.append(pid)
            if table[pid][0] not in ("Z", "X"):
                found.append(pid)
    return found


def near_descendants(root: int) -> list[int]:
    """Descendants forked by main threads: a handful of small reads; reading the whole node takes milliseconds."""
    found: list[int] = []
    todo = [root]
    while todo:
        pid = todo.pop()
        with suppress(OSError, ValueError), open("/proc/%d/task/%d/children" % (pid, pid)) as children:
            born = [int(word) for word in children.read().split()]
            found += born
            todo += born
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Signal each pid that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


# Of a container's runtime: they pass a signal on to the first process inside, a shell that it would end.
RUNTIMES = ("apptainer", "singularity", "starter", "starter-suid", "podman", "podman-hpc", "conmon", "crun", "runc",
            "enroot", "enroot-nsenter", "fuse-overlayfs", "squashfuse_ll", "slirp4netns", "catatonit")


def signal_handlers(pids: Iterable[int], number: int, is_for_shell: bool = False, task: int = 0) -> dict[int, str]:
    """pid → name of the processes that handle `number` and were sent it.

    Never bash, srun or torchrun: the signal is for the training, and a launcher that obeys it would end its ranks.
    Only where a script asks for it `is_for_shell`, and where the shell is the `task` itself of a script's own srun.
    """
    reached = {}
    for pid in pids:
        try:
            with open("/proc/%d/status" % pid) as status:
                # The value can be empty ("Groups:" of a user without any).
                fields = {key: value.strip() for key, _, value in (line.partition(":") for line in status)}
            with open("/proc/%d/cmdline" % pid, "rb") as cmdline:
                words = cmdline.read().split(b"\0")
        except (OSError, ValueError):
            continue
        caught = int(fields.get("SigCgt", "0").split()[0], 16) >> (number - 1) & 1
        is_rank = fields.get("Name") not in ("srun", *RUNTIMES) and not is_launcher(words)
        if fields.get("Name") in ("bash", "sh"):
            is_rank = pid == task
        if caught and (is_rank or is_for_shell):
            send([pid], number)
            reached[pid] = "%s[%d]" % (fields.get("Name"), pid)
    return reached


def is_launcher(argv: list[bytes]) -> bool:
    """Whether a command line is that of torchrun, or of another launcher that starts ranks."""
    own = os.fsencode(os.environ.get("SAFELAUNCH_PROGRAM") or "torchrun")   # of launch.call
    programs = (b"torchrun", b"accelerate", b"accelerate-launch", b"deepspeed", b"ft_launcher", own)
    modules = (b"torch.distributed.run", b"torch.distributed.launch", b"accelerate.commands.launch",
               b"deepspeed.launcher.launch", b"deepspeed.launcher.runner",
               b"nvidia_resiliency_ext.fault_tolerance.launcher")
    return any(os.path.basename(word) in programs or word in (*modules, own) for word in argv[:4])


def sweep(mark: str, grace_s: float) -> dict[str, Any]:
    """End every process of this user on this node that carries SAFELAUNCH_MARK=mark; {"node", "found", "left"}."""
    node = os.environ.get("SLURMD_NODENAME", "")
    found = marked(mark, node)
    send(found, signal.SIGTERM)
    end = time.monotonic() + grace_s
    left = marked(mark, node)
    while left:
        if time.monotonic() >= end:
            send(left, signal.SIGKILL)
        if time.monotonic() >= end + 5.0:
            break
        time.sleep(0.05)
        left = marked(mark, node)
    return {"node": node or short_host(), "found": len(found), "left": left}


def marked(mark: str, node: str) -> list[int]:
    """Pids of living processes with this mark in their environment (only one's own are readable) and of this node.

    The node's name counts because several nodes can share one process table: a sandbox, or slurmds with `-N`. The
    job's number does because a job that a script submits inherits the mark.
    """
    mine, pids = os.getpid(), []
    job = mark.partition(".")[2].rpartition(".")[0]   # RUN.JOB.ATTEMPT
    for pid, (state, _) in processes().items():
        if pid == mine or state in ("Z", "X"):
            continue
        with suppress(OSError), open("/proc/%d/environ" % pid, "rb") as environ:
            words = environ.read().split(b"\0")
            where = [word for word in words if word.startswith(b"SLURMD_NODENAME=")]
            is_here = not node or not where or where[0] == b"SLURMD_NODENAME=" + node.encode()
            own = b"SLURM_JOB_ID=" + job.encode()
            is_other = bool(job) and any(word.startswith(b"SLURM_JOB_ID=") and word != own for word in words)
            if is_here and not is_other and b"SAFELAUNCH_MARK=" + mark.encode() in words:
                pids.append(pid)
    return pids
