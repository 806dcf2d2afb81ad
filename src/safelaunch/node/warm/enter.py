"""Stands where a rank's shell starts Python: hands what the shell has given it to a parked interpreter, or starts one.

`python3 -ISc … NAME RANK python3 [options] SCRIPT …`, in the shell's own place; its text comes in SAFELAUNCH_ENTER.
NAME is the keeper's socket. Exit code 0 and a keeper that calls the rank "taken": the parked process is the rank now.

Standard library, Python 3.9; few modules: a cold start waits for it.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found, unused-ignore]
import _socket as socket
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional

ANSWER_S = 3.0     # for a parked process to look at its files again
MOST_FDS = 60


def main(name: str, rank: str, words: list[str]) -> NoReturn:
    """Never returns."""
    with open("/proc/self/environ", "rb") as environ:   # as it was given: Python adds LC_CTYPE to a C locale
        env = dict(os.fsdecode(pair).split("=", 1) for pair in environ.read().split(b"\0") if b"=" in pair)
    env.pop("SAFELAUNCH_ENTER", None)
    exe = which(words[0], env.get("PATH", os.defpath))
    is_taken = False
    try:  # noqa: SIM105 - contextlib takes 4 ms of each restart to import
        is_taken = exe is not None and hand_over(name, rank, words, exe, {**env, "_": exe})
    except Exception:  # noqa: BLE001, S110 - the cold way remains
        pass
    if is_taken:
        os._exit(0)
    start(words, exe, env)


def start(words: list[str], exe: Optional[str], env: dict[str, str]) -> NoReturn:
    """The cold way."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(exe or words[0], words, {**env, "_": exe or words[0]})  # noqa: S606 - not a shell's: the rank itself
    except OSError as error:
        sys.stderr.write("%s: %s\n" % (words[0], error.strerror))
        sys.stderr.flush()
        os._exit(126 if exe else 127)


def which(name: str, path: str) -> Optional[str]:
    """Where the shell finds a program."""
    places = [name] if "/" in name else [os.path.join(folder or ".", name) for folder in path.split(":")]
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


def hand_over(name: str, rank: str, words: list[str], exe: str, env: dict[str, str]) -> bool:
    """Whether a parked process is the rank now. Where that is not sure it is dead before this says no."""
    import json
    import struct

    fds = open_fds()
    if len(fds) > MOST_FDS or any(fd <= 2 and os.isatty(fd) for fd in fds):
        return False
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(ANSWER_S)
        sock.connect(b"\0" + name.encode())
        sock.send(b"enter %s\n" % rank.encode())
        if _line(sock) != b"free\n":
            return False
    except OSError:
        return False
    try:
        state = {"words": words, "exe": exe, "env": env, "cwd": os.getcwd(), "umask": umask(), "fds": fds,
                 "policy": os.sched_getscheduler(0), "self": _self(),
                 "limits": {str(number): resource.getrlimit(number) for number in LIMITS}}
        text = json.dumps(state).encode() + b"\n"
        sent = sock.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("%di" % len(fds), *fds))])
        while sent < len(text):
            sent += sock.send(text[sent:])
        if _line(sock) == b"ready\n":
            sock.send(b"go\n")
            if _line(sock) == b"started\n":
                return True
    except (OSError, ValueError):
        pass
    return not is_ended(name, rank)


def is_ended(name: str, rank: str) -> bool:
    """End a parked process of which nobody knows whether it has begun; True once it is gone without having."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(b"\0" + name.encode())
        sock.send(b"end %s\n" % rank.encode())
        return _line(sock) == b"ended\n"
    except OSError:
        return True   # it has died with its keeper


def _line(sock: Any) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = sock.recv(1 << 10)
        if not part:
            return b""
        data += part
    return data


def open_fds() -> list[int]:
    """This process's descriptors, which its shell has given it."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            pass   # of this listing
    return found


def umask() -> int:
    """Its own."""
    mask = os.umask(0o77)
    os.umask(mask)
    return mask


def _self() -> dict[str, Any]:
    """What a process has from its parents, and keeps; process.py has the same text."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    found: dict[str, Any] = {name: fields.get(name, "").strip() for name in (
        "Uid", "Gid", "Groups", "SigBlk", "CapEff", "NoNewPrivs", "Seccomp", "Cpus_allowed")}
    # Python itself ignores SIGPIPE and SIGXFSZ.
    found["SigIgn"] = int(fields["SigIgn"], 16) & ~(1 << 12 | 1 << 24)
    found["ns"] = [os.readlink("/proc/self/ns/" + name) for name in ("mnt", "net", "pid", "user", "ipc", "uts")]
    found["root"] = [os.stat("/").st_dev, os.stat("/").st_ino]
    found["nice"] = os.getpriority(os.PRIO_PROCESS, 0)
    return found


LIMITS = sorted(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
if len(sys.argv) > 1:
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
