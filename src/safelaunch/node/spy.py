"""Python stacks of running processes by py-spy, else pystack, with the reason where there is none.

py-spy reads a process without stopping it first (--nonblocking). That takes 10 ms, disturbs nobody, and works on
stopped processes. There a blocking dump fails with "unexpected waitpid result" (both measured, py-spy 0.4.3). A
blocking dump follows only where the other found nothing. Of a process that calls functions without a pause, 1 to 4
dumps of 100 are torn: outer frames are missing, or all (measured, Python 3.11 and 3.14). They are taken again. Travels
with node.collect as text: standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat

from safelaunch.node import children, devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Optional

    from safelaunch.node.proctable import Process

DUMP_S = 3.0          # a dump takes 10 to 50 ms
NATIVE_S = 10.0       # reading the symbols of torch takes a second (measured)
DRAFT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
FIND_S = 0.5          # to look at one program file
MOST_THREADS = 256
MORE_TRIES = 3        # for a torn dump: 10 ms each
HINT = "for Python stacks, py-spy must be installed where the training's Python is: pip install py-spy"
_OUTERMOST = ("<module>", "_run_module_as_main", "_bootstrap")   # the last: of a process that a thread forked
_PYSTACK_THREAD = re.compile(r"^Traceback for thread (\d+)(?: \((.*?)\))? (?:\[(.*?)\] )?")
_PYSTACK_FRAME = re.compile(r'^\s*\((\w+)\) File "(.*)", line (\d+), in (.*)$')


class Tools:
    """Where the tools are on this node; None = not found. `stuck`: candidates that lie on a frozen filesystem."""

    def __init__(self, py_spy: Optional[str], pystack: Optional[str], stuck: list[str]) -> None:
        self.py_spy, self.pystack, self.stuck = py_spy, pystack, stuck


def find_tools(envs: Iterable[Mapping[str, str]], commands: Iterable[list[str]], until_s: float) -> Tools:
    """The tools, looked for on local disk first, then beside the interpreters and on the PATHs, which may be frozen."""
    near = _near_folders()
    far = installed_folders(envs, commands)
    stuck: list[str] = []
    py_spy, pystack = (_find(name, near, until_s, stuck) for name in ("py-spy", "pystack"))
    if py_spy is None:   # else what is far, and may be frozen, is not needed
        py_spy = _find("py-spy", far, until_s, stuck)
        pystack = pystack or _find("pystack", far, until_s, stuck)
    return Tools(py_spy, pystack, stuck)


def find_pystack(until_s: float) -> Optional[str]:
    """pystack for core files, wherever it is on this node."""
    return _find("pystack", [*_near_folders(), *installed_folders([], [])], until_s, [])


def _near_folders() -> list[str]:
    return [*([local_folder()] if is_own_folder(local_folder()) else []), *devices.SYSTEM_PATH.split(":")]


def installed_folders(envs: Iterable[Mapping[str, str]], commands: Iterable[list[str]]) -> list[str]:
    """Where a user has installed things: beside the interpreters, in virtual environments, on the PATHs."""
    far = [os.path.dirname(first[0]) for first in commands if first and "/" in first[0]]
    for env in (os.environ, *envs):
        far += [os.path.dirname(env["SAFELAUNCH_PYTHON"])] if env.get("SAFELAUNCH_PYTHON") else []
        far += [os.path.join(env[key], "bin") for key in ("VIRTUAL_ENV", "CONDA_PREFIX") if env.get(key)]
        far += env.get("PATH", "").split(":")
    return far


def _find(name: str, folders: Iterable[str], until_s: float, stuck: list[str]) -> Optional[str]:
    """The first of these folders' programs of that name; those that do not answer are added to `stuck`."""
    paths = [os.path.join(folder, name) for folder in dict.fromkeys(folders) if folder.startswith("/")]
    found, hanging = children.walk(paths, lambda path: os.access(path, os.X_OK), FIND_S, until_s)
    stuck += [paths[index] for index in hanging]
    return next((paths[index] for index in sorted(found) if found[index]), None)


def local_folder() -> str:
    """This user's own folder on the node's disk, as the batch script makes it."""
    return os.path.join(os.environ.get("SAFELAUNCH_LOCAL_DIR", "/tmp"), "safelaunch-%d" % os.getuid())  # noqa: S108


def is_own_folder(path: str) -> bool:
    """Whether a folder is this user's alone: whoever came first to its name could else plant a program there."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def keep_local_copy(envs: Iterable[Mapping[str, str]], commands: Iterable[list[str]]) -> str:
    """Where py-spy lies on the node's own disk from now on. A program on a frozen filesystem cannot be executed. ""
    where it was not found or the folder is not ours alone. The installed one is taken, also in place of an older copy.

    Runs in a child with a deadline. pystack is many files and stays where it is.
    """
    folder = local_folder()
    target = os.path.join(folder, "py-spy")
    places = [*installed_folders(envs, commands), *devices.SYSTEM_PATH.split(":")]
    paths = [os.path.join(place, "py-spy") for place in dict.fromkeys(places) if place.startswith("/")]
    source = next((path for path in paths if path != target and os.access(path, os.X_OK)), None)
    if source is None or _is_copy_of(target, source):
        return target if is_own_folder(folder) and os.access(target, os.X_OK) else ""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if not is_own_folder(folder):
        return ""
    draft = "%s.%d" % (target, os.getpid())
    try:
        with open(source, "rb") as program, open(os.open(draft, DRAFT, 0o700), "wb") as copy:
            shutil.copyfileobj(program, copy)
            copy.flush()
            status = os.fstat(program.fileno())
            os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))   # as _is_copy_of compares
            os.fchmod(copy.fileno(), 0o700)   # whatever the umask
        os.replace(draft, target)
    finally:
        with contextlib.suppress(OSError):   # on a full disk half a copy would keep the rest of it from the training
            os.unlink(draft)
    return target


def _is_copy_of(target: str, source: str) -> bool:
    try:
        one, other = os.stat(target), os.stat(source)
    except OSError:
        return False
    return (one.st_size, int(one.st_mtime)) == (other.st_size, int(other.st_mtime))


def dump_task(pid: int, state: str, tools: Tools, native: bool) -> Optional[children.Task]:
    """The first look at a process; None where there is no tool, or no process any more."""
    if state in "ZX":
        return None
    if tools.py_spy is not None:
        pause = native and state not in "DTt"   # native frames need the process stopped by ptrace
        return children.Task(pid, [tools.py_spy, "dump", "--json", "--native" if pause else "--nonblocking",
                                   "--pid", str(pid)], NATIVE_S if pause else DUMP_S)
    return _pystack_task(pid, tools, native, state)


def mend_torn(tasks: Iterable[children.Task], outcomes: dict[Any, children.Outcome], at_once: int,
              until_s: float) -> None:
    """Take those of these dumps again that are torn; what comes stands in `outcomes` then."""
    for _ in range(MORE_TRIES):
        tasks = [task for task in tasks if _is_torn(task.name, outcomes[task.name])]
        outcomes.update((pid, outcome) for pid, outcome in children.run_all(tasks, at_once, until_s).items()
                        if not outcome.late)


def _is_torn(pid: int, outcome: children.Outcome) -> bool:
    """Whether outer frames are missing, as far as can be told: programs that embed Python begin elsewhere."""
    if outcome.code != 0:
        return was_overtaken(outcome)
    threads = read_dump(outcome.text)
    main = next((thread for thread in threads if thread["tid"] == pid or thread["name"] == "MainThread"), None)
    return main is not None and (not main["frames"] or main["frames"][-1].rpartition(" (")[0] not in _OUTERMOST)


def was_overtaken(outcome: children.Outcome) -> bool:
    """Whether py-spy failed since the stack changed while it was read."""
    return "Failed to get stack trace" in outcome.said


def second_task(pid: int, state: str, tools: Tools, outcome: children.Outcome) -> Optional[children.Task]:
    """Another way for a process whose first dump failed; None where it would fail as well, or disturb."""
    if state in "DTtZX" or outcome.late or is_refusal(outcome.said) or tools.py_spy is None:
        return None
    if "Bad address" in outcome.said and not was_overtaken(outcome):
        return None
    if tools.pystack is not None:   # it knows each Python by that Python's own symbols, py-spy by a list of versions
        return _pystack_task(pid, tools, False, state)
    return children.Task(pid, [tools.py_spy, "dump", "--json", "--pid", str(pid)], DUMP_S)


def _pystack_task(pid: int, tools: Tools, native: bool, state: str) -> Optional[children.Task]:
    if tools.pystack is None:
        return None
    how = ["--native"] if native and state not in "DTt" else ["--no-block"]
    return children.Task(pid, [tools.pystack, "remote", *how, str(pid)], NATIVE_S)


def read_dump(text: str) -> list[dict[str, Any]]:
    """[{"name", "tid", "active", "gil", "frames": ["f (file.py:3)", …] innermost first}] of a dump of either tool."""
    try:
        threads = json.loads(text)
    except ValueError:
        return _read_pystack(text)
    return [{"name": thread.get("thread_name") or "", "tid": thread.get("os_thread_id") or 0,
             "active": bool(thread.get("active")), "gil": bool(thread.get("owns_gil")),
             "frames": [_frame(frame["name"], frame.get("short_filename") or frame.get("filename") or
                               frame.get("module") or "", frame.get("line") or 0) for frame in thread["frames"]]}
            for thread in threads[:MOST_THREADS]]


def _frame(name: str, file: str, line: int) -> str:
    return "%s (%s:%d)" % (name, file, line) if line else "%s (%s)" % (name, file)


def _read_pystack(text: str) -> list[dict[str, Any]]:
    threads: list[dict[str, Any]] = []
    for line in text.splitlines():
        head, frame = _PYSTACK_THREAD.match(line), _PYSTACK_FRAME.match(line)
        if head:
            threads.append({"name": "", "tid": int(head.group(1)), "active": "Has the GIL" in line,
                            "gil": "Has the GIL" in line, "frames": []})
        elif frame and threads:
            _, file, number, name = frame.groups()
            file = re.sub(r"^.*/(?:site|dist)-packages/|^.*/lib/python3[.\d]*/", "", file)
            threads[-1]["frames"].insert(0, _frame(name.split(" (")[0], file, int(number)))   # outermost first
    return threads


def is_refusal(said: str) -> bool:
    """Whether a tool was refused by the kernel."""
    return bool(re.search(r"EPERM|EACCES|[Pp]ermission [Dd]enied|Operation not permitted", said))


def why_not(process: Process, tools: Tools, outcome: Optional[children.Outcome]) -> tuple[str, str]:
    """(why there is no stack, what would help), as far as /proc and the tool tell."""
    if process.state in "ZX":
        return "it has ended (zombie)", ""
    if tools.py_spy is None and tools.pystack is None:
        on = " (it may lie on a frozen filesystem)" if tools.stuck else ""
        return "py-spy is not on this node%s" % on, HINT
    if outcome is None or outcome.late:
        state = " and sleeps in D state" if process.state == "D" else ""
        return "the look at it did not end in time%s" % state, ""
    said = outcome.said
    if is_refusal(said) or "Failed to get process executable name" in said:
        return _why_refused(process) or (said, "")
    if "Bad address" in said or "Failed to find python" in said or "Couldn't parse" in said:
        return "it is not a Python process that py-spy knows", ""
    return said or "the tool found no Python in it", ""


def _why_refused(process: Process) -> Optional[tuple[str, str]]:
    scope = _first("/proc/sys/kernel/yama/ptrace_scope")
    if scope in ("1", "2", "3") and os.getuid():
        what = {"1": "only its parents", "2": "only root", "3": "nobody"}[scope]
        return ("ptrace refused: kernel.yama.ptrace_scope is %s, %s may look into a process" % (scope, what),
                "an administrator can allow it: sysctl kernel.yama.ptrace_scope=0"
                + ("; or the training: prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)" if scope == "1" else ""))
    with contextlib.suppress(OSError):
        owner = os.stat("/proc/%d/environ" % process.pid).st_uid   # the folder's own owner stays: proc(5)
        if owner == 0 and os.getuid():
            return ("ptrace refused: the process is closed to others, even of its own user (PR_SET_DUMPABLE, or a "
                    "program with privileges)", "root can look: sudo py-spy dump --pid %d" % process.pid)
        if owner != os.getuid() and os.getuid():
            return "ptrace refused: it belongs to user %d" % owner, ""
    with contextlib.suppress(OSError):
        if os.readlink("/proc/%d/ns/user" % process.pid) != os.readlink("/proc/self/ns/user"):
            return ("ptrace refused: it lives in a container with users of its own",
                    "run py-spy inside of the container, or start it with --cap-add SYS_PTRACE")
    if process.state == "D":
        return "refused while it sleeps in D state", ""
    if _first("/sys/fs/selinux/booleans/deny_ptrace").startswith("1"):
        return ("ptrace refused: SELinux's deny_ptrace is on", "an administrator can allow it: setsebool deny_ptrace 0")
    if any("\nSeccomp:\t2" in _first("/proc/%s/status" % pid, 8192) for pid in (process.pid, "self")):
        return ("ptrace refused: a filter of system calls (seccomp) is in force, as in most containers",
                "start the container with --cap-add SYS_PTRACE, or with --security-opt seccomp=unconfined")
    return None


def _first(path: str, most: int = 16) -> str:
    try:
        with open(path) as file:
            return file.read(most).strip()
    except OSError:
        return ""
