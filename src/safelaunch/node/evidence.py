"""What the kernel says of one process: state, where it sleeps, in which call, on which file and mount.

All of it from /proc, none of it by touching the file meant. Runs in a disposable child (node.children.walk):
/proc/PID/mem may hang. Travels with node.collect as text: standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import re

from safelaunch.node.proctable import read_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

MOST_THREADS = 512
MOST_FILES = 24
# Numbers of the calls that processes sleep in: asm/unistd_64.h (x86_64), asm-generic/unistd.h (aarch64).
_X86 = {0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 8: "lseek",
        9: "mmap", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 21: "access", 23: "select",
        35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg",
        59: "execve", 61: "wait4", 73: "flock", 74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate",
        78: "getdents", 80: "chdir", 82: "rename", 83: "mkdir", 84: "rmdir", 86: "link", 87: "unlink", 88: "symlink",
        89: "readlink", 90: "chmod", 137: "statfs", 138: "fstatfs", 202: "futex", 217: "getdents64",
        230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 258: "mkdirat", 262: "newfstatat",
        263: "unlinkat", 264: "renameat", 270: "pselect6", 271: "ppoll", 277: "sync_file_range", 281: "epoll_pwait",
        285: "fallocate", 316: "renameat2", 326: "copy_file_range", 332: "statx"}
_ARM = {29: "ioctl", 32: "flock", 33: "mknodat", 34: "mkdirat", 35: "unlinkat", 37: "linkat", 38: "renameat",
        43: "statfs", 44: "fstatfs", 45: "truncate", 46: "ftruncate", 47: "fallocate", 48: "faccessat", 56: "openat",
        57: "close", 61: "getdents64", 62: "lseek", 63: "read", 64: "write", 65: "readv", 66: "writev",
        67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll", 78: "readlinkat", 79: "newfstatat", 80: "fstat",
        82: "fsync", 83: "fdatasync", 22: "epoll_pwait", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep",
        203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 221: "execve", 222: "mmap",
        260: "wait4", 276: "renameat2", 291: "statx"}
_BY_FD = frozenset(("read", "write", "close", "fstat", "lseek", "ioctl", "pread64", "pwrite64", "readv", "writev",
                    "flock", "fsync", "fdatasync", "ftruncate", "getdents", "getdents64", "fstatfs", "fallocate",
                    "sync_file_range", "recvfrom", "recvmsg", "sendto", "sendmsg", "connect"))
_BY_PATH = frozenset(("open", "stat", "lstat", "access", "execve", "truncate", "chdir", "rename", "mkdir", "rmdir",
                      "unlink", "readlink", "chmod", "statfs"))
_BY_PATH_AT = frozenset(("openat", "mkdirat", "newfstatat", "unlinkat", "renameat", "renameat2", "statx", "faccessat",
                         "mknodat", "readlinkat"))
_PSEUDO = frozenset(("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue", "debugfs", "tracefs",
                     "securityfs", "pstore", "bpf", "configfs", "hugetlbfs", "rpc_pipefs", "binfmt_misc", "nsfs",
                     "efivarfs", "autofs"))

_BACKWARD: dict[int, list[str]] = {}


def look(pid: int) -> dict[str, Any]:
    """Everything of one process, in words that JSON knows."""
    mounts = read_mounts(pid)
    status = _read("/proc/%d/status" % pid)
    threads, blocked = _threads(pid, mounts)
    main = where(pid, pid, mounts)
    files, in_use, sockets = _files(pid, mounts)
    rss = re.search(r"VmRSS:\s+(\d+) kB", status)
    return {**main, "threads": threads, "blocked": blocked, "files": files, "mounts": in_use, "sockets": sockets,
            "rss_mb": int(rss.group(1)) // 1024 if rss else None, "kernel": _kernel_stack(pid, pid),
            "cgroup": _read("/proc/%d/cgroup" % pid).strip().splitlines()[-1:]}


def where(pid: int, tid: int, mounts: dict[int, tuple[str, str]]) -> dict[str, Any]:
    """Where a thread is: {"state", "wchan", "call", "path", "mount", "fs"}; "" for what the kernel does not tell."""
    task = "/proc/%d/task/%d/" % (pid, tid)
    state = ""
    with contextlib.suppress(OSError, ValueError, IndexError):
        state = read_stat(task + "stat").state
    wchan = _read(task + "wchan")
    call, path, mount, fs = _call(pid, _read(task + "syscall").split(), mounts)
    return {"state": state, "wchan": "" if wchan == "0" else wchan, "call": call, "path": path, "mount": mount,
            "fs": fs}


def _call(pid: int, words: list[str], mounts: dict[int, tuple[str, str]]) -> tuple[str, str, str, str]:
    """(call, path, mount, filesystem) from /proc/PID/syscall: "number arg… sp pc", "running", or nothing."""
    if not words or not words[0].lstrip("-").isdigit() or words[0].startswith("-"):
        return "", "", "", ""
    number, arguments = int(words[0]), [int(word, 16) for word in words[1:7]]
    name = (_ARM if os.uname().machine == "aarch64" else _X86).get(number, "call %d" % number)
    path, mount = "", ("", "")
    if name in _BY_FD and arguments:
        path, mount = _file(pid, arguments[0] & 0xFFFFFFFF, mounts)
    elif name in _BY_PATH and arguments:
        path = _path_at(pid, arguments[0])
    elif name in _BY_PATH_AT and len(arguments) > 1:
        path = _path_at(pid, arguments[1])
    if path and not mount[0]:
        if not path.startswith(("/", "socket:", "pipe:", "anon_inode:")):
            path = os.path.join(_link("/proc/%d/cwd" % pid), path)
        mount = mount_of(path, mounts)
    return name, path, mount[0], mount[1]


def _path_at(pid: int, address: int) -> str:
    """The path that a call was given, from the process's memory; "" where that is closed to us."""
    try:
        with open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(1024).partition(b"\0")[0].decode(errors="replace")
    except (OSError, OverflowError, ValueError):
        return ""


def _file(pid: int, fd: int, mounts: dict[int, tuple[str, str]]) -> tuple[str, tuple[str, str]]:
    """(path, (mount, filesystem)) of an open file, by the mount's number: the path may lead elsewhere by now."""
    path = _link("/proc/%d/fd/%d" % (pid, fd))
    number = re.search(r"mnt_id:\s*(\d+)", _read("/proc/%d/fdinfo/%d" % (pid, fd)))
    if number and int(number.group(1)) in mounts:
        return path, mounts[int(number.group(1))]
    return path, mount_of(path, mounts)


def mount_of(path: str, mounts: dict[int, tuple[str, str]]) -> tuple[str, str]:
    """(mount, filesystem) that holds a path, by its name alone: nothing is touched."""
    best = ("", "")
    for point, fs in mounts.values():
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[0]):
            best = (point, fs)
    return best


def read_mounts(pid: int) -> dict[int, tuple[str, str]]:
    """mount's number → (mount point, filesystem) as a process sees them: proc(5), mountinfo."""
    found = {}
    for line in _read("/proc/%d/mountinfo" % pid, 1 << 20).splitlines():
        words = line.split()
        with contextlib.suppress(ValueError, IndexError):
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), words[4])
            found[int(words[0])] = (point, words[words.index("-") + 1])
    return found


def _threads(pid: int, mounts: dict[int, tuple[str, str]]) -> tuple[int, list[dict[str, Any]]]:
    """(how many threads, those in D state or stopped, the main one left out)."""
    try:
        tids = [int(name) for name in os.listdir("/proc/%d/task" % pid)]
    except OSError:
        return 0, []
    blocked = []
    for tid in sorted(tids)[:MOST_THREADS]:
        with contextlib.suppress(OSError, ValueError, IndexError):
            thread = read_stat("/proc/%d/task/%d/stat" % (pid, tid))
            if tid != pid and thread.state in "DTt":
                blocked.append({"tid": tid, "name": thread.comm, **where(pid, tid, mounts)})
    return len(tids), blocked


def _files(pid: int, mounts: dict[int, tuple[str, str]]) -> tuple[list[dict[str, str]], dict[str, int], list[int]]:
    """(open files on real filesystems, mount → how many of them, folder and program included, inodes of sockets)."""
    files: list[dict[str, str]] = []
    links = (_link("/proc/%d/%s" % (pid, name)) for name in ("cwd", "exe"))
    in_use = {mount_of(path, mounts)[0]: 1 for path in links if path}
    sockets = []
    try:
        numbers = sorted(int(name) for name in os.listdir("/proc/%d/fd" % pid))
    except OSError:
        return [], {}, []
    for number in numbers[:4096]:
        path = _link("/proc/%d/fd/%d" % (pid, number))
        if path.startswith("socket:["):
            sockets.append(int(path[8:-1]))
        if not path.startswith("/") or path.startswith(("/dev/", "/proc/", "/sys/", "/memfd:")):
            if path.startswith("/dev/nvidia"):
                in_use["/dev/nvidia"] = in_use.get("/dev/nvidia", 0) + 1
            continue
        path, (mount, fs) = _file(pid, number, mounts)
        in_use[mount] = in_use.get(mount, 0) + 1
        if len(files) < MOST_FILES:
            files.append({"fd": str(number), "path": path, "mount": mount, "fs": fs})
    return files, in_use, sockets


def count_switches(pid: int) -> int:
    """How often the main thread has given its core away: one that sleeps without end stays at its number."""
    found = re.findall(r"ctxt_switches:\s+(\d+)", _read("/proc/%d/status" % pid))
    return sum(map(int, found))


def count_life(pid: int, below: Iterable[int]) -> list[float]:
    """[bytes read and written, page faults, CPU seconds of the processes below it, rests of its backward threads].

    What moves although the stack does not. A rank may write its checkpoint in one call, or wait for its compiler. Or it
    goes through steps that all end in the same wait for its GPU. No ptrace is needed: proc(5), /proc/PID/io. Children
    that have ended stay in the sums, as their parents' cutime and cstime, and in their io. A compiler lives for less
    time than lies between two looks. A data loader's end must not outweigh what the rank itself has written.
    """
    moved, faults, below_ticks = 0, 0, 0
    for one in (pid, *below):
        moved += sum(map(int, re.findall(r"^[rw]char: (\d+)", _read("/proc/%d/io" % one), re.MULTILINE)))
        words = _read("/proc/%d/stat" % one).rpartition(")")[2].split()
        if len(words) > 14:
            own_ticks, ended_ticks = (int(words[at]) + int(words[at + 1]) for at in (11, 13))
            below_ticks += ended_ticks if one == pid else own_ticks + ended_ticks
            faults += int(words[7]) + int(words[9]) if one == pid else 0
    below_s = round(below_ticks / os.sysconf("SC_CLK_TCK"), 2)
    return [moved, faults, below_s, sum(map(_rests, _backward_threads(pid)))]


def _backward_threads(pid: int) -> list[str]:
    """Folders of the threads that run PyTorch's backward passes, which are named so (pytorch, pull 121170)."""
    if pid not in _BACKWARD:
        _BACKWARD[pid] = []
        with contextlib.suppress(OSError):
            tasks = ["/proc/%d/task/%s" % (pid, tid) for tid in os.listdir("/proc/%d/task" % pid)[:MOST_THREADS]]
            _BACKWARD[pid] = [task for task in tasks if _read(task + "/comm").startswith("pt_autograd")]
    return _BACKWARD[pid]


def _rests(task: str) -> int:
    """How often a thread has gone to sleep by itself: these do behind each step, and never while one hangs."""
    found = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", _read(task + "/status"), re.MULTILINE)
    return int(found.group(1)) if found else 0


def real_mounts(pid: int) -> dict[str, str]:
    """mount point → filesystem of those that hold files: what a training may wait for."""
    return {point: fs for point, fs in read_mounts(pid).values()
            if fs not in _PSEUDO and not point.startswith(("/proc", "/sys", "/dev", "/run"))}


def _kernel_stack(pid: int, tid: int) -> list[str]:
    """Functions of the kernel, innermost first; root alone may read them (proc(5): CAP_SYS_ADMIN)."""
    return re.findall(r"^\[<\w+>\] ([\w.]+)", _read("/proc/%d/task/%d/stack" % (pid, tid)), re.MULTILINE)[:24]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(path: str, most: int = 1 << 16) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""
