"""The keeper of a node's parked interpreters: it starts one for each rank that lives here, and is their parent.

`python3 -ISc TEXT NAME MARK PARENT` in a step that waits for the next attempt. MARK is that of the attempt that runs.
NAME is the socket (abstract, of this user only) of its callers: a rank's shell that would start Python (enter.py), and
the starter of the ranks (node/ranks.py), whom it tells which parked process has become a rank, and how that has ended.

It dies with its parent, and the parked die with it, by the kernel (PR_SET_PDEATHSIG). Standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, Optional

FIND_EVERY_S, FIND_FOR_S = 1.0, 120.0
FORGOTTEN_S = 900.0        # longer than checks of nodes and a setup take
BASE_FREE = 2.0            # times what all parked take: so much must be free besides (restart.warm: auto)
PAD = 4096                 # bytes by which the next rank's environment and words may be longer
HIDDEN = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "SAFELAUNCH_MARK", "SLURM_JOB_ID", "SLURM_PROCID")
OPTIONS = ("-u", "-O", "-OO", "-B", "-q", "-b", "-bb")
PR_SET_PDEATHSIG = 1
# Nobody without rights comes back from nice or from SCHED_IDLE (sched(7): RLIMIT_NICE is 0). So one imports at a time,
# for a quarter of a core: the training hardly feels that.
WORK_S, REST_S = 0.05, 0.15
SOL = (socket.SOL_SOCKET, socket.SCM_RIGHTS)


class LivingRank:
    """A rank that lives: what its parked stand-in is made of."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        with open("/proc/%d/environ" % pid, "rb") as file:
            self.env = dict(os.fsdecode(pair).split("=", 1) for pair in file.read().split(b"\0") if b"=" in pair)
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            self.words = os.fsdecode(file.read().rstrip(b"\0")).split("\0")

    def is_of(self, mark: str, node: str) -> bool:
        """Whether it is a rank of this attempt on this node, in a session of its own."""
        env = self.env
        return (env.get("SAFELAUNCH_MARK") == mark and env.get("SLURMD_NODENAME", "") == node
                and env.get("LOCAL_RANK", "").isdigit() and os.getsid(self.pid) == self.pid
                and os.path.basename(os.readlink("/proc/%d/exe" % self.pid)).startswith("python"))

    def options(self) -> Optional[int]:
        """How many options stand before the script; None: not `python SCRIPT`."""
        count, words = 0, self.words[1:]
        while words and words[0].startswith("-"):
            taken = 2 if words[0] in ("-W", "-X") else 1
            if not (taken == 2 or words[0] in OPTIONS or words[0][:2] in ("-W", "-X")):
                return None
            words, count = words[taken:], count + taken
        return count if words and words[0].endswith(".py") else None

    def exe(self) -> Optional[str]:
        """The path of its interpreter as its shell found it."""
        name = self.words[0]
        places = [name] if "/" in name else [folder + "/" + name for folder in self.env.get("PATH", "").split(":")]
        path = next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), "")
        is_it = path.startswith("/") and os.path.realpath(path) == os.path.realpath("/proc/%d/exe" % self.pid)
        return path if is_it else None


class StandIn:
    """A parked interpreter, from the keeper's side."""

    def __init__(self, rank: LivingRank, exe: str, options: int, hook: int) -> None:
        self.is_ready = self.is_taken = self.is_offered = self.is_resting = False
        self.status: Optional[int] = None
        self.why = ""
        self.control, theirs = socket.socketpair()
        out, err = os.pipe(), os.pipe()
        own = "/proc/self/fd/%d" % hook
        path = rank.env.get("PYTHONPATH")
        env = {name: value for name, value in rank.env.items() if name not in HIDDEN}
        env.update(PYTHONPATH=own if path is None else own + ":" + path, SAFELAUNCH_PARKED=str(theirs.fileno()))
        lacks = sum(len(os.fsencode(name + rank.env.get(name, ""))) + 2 for name in HIDDEN)
        env["SAFELAUNCH_ROOM"] = "x" * (lacks + PAD)
        words = [*rank.words[:1 + options], "-m", "safelaunch_parked", "x" * (sum(map(len, rank.words)) + PAD)]
        self.pid = os.fork()
        if self.pid == 0:
            self._become(exe, words, env, (out[1], err[1]), (theirs.fileno(), hook, out[0], err[0]))
        for end in (*out, *err):
            os.close(end)
        theirs.close()
        job = {"env": rank.env, "cwd": os.readlink("/proc/%d/cwd" % rank.pid), "words": rank.words,
               "options": options, "pipes": [out[0], err[0]]}
        self.control.sendall(json.dumps(job).encode() + b"\n")

    @staticmethod
    def _become(exe: str, words: list[str], env: dict[str, str], outputs: tuple[int, int],
                kept: tuple[int, ...]) -> NoReturn:
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for number in range(1, signal.NSIG):
                if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
                    with contextlib.suppress(OSError, ValueError):
                        signal.signal(number, signal.SIG_DFL)
            os.setsid()
            os.chdir("/")
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            nothing = os.open(os.devnull, os.O_RDWR)
            for target, fd in enumerate((nothing, *outputs)):
                os.dup2(fd, target)
            for fd in map(int, os.listdir("/proc/self/fd")):
                if fd > 2:
                    with contextlib.suppress(OSError):
                        os.set_inheritable(fd, fd in kept)
            os.execve(exe, words, env)  # noqa: S606 - the rank's own interpreter
        finally:
            os._exit(127)

    def rest(self, is_resting: bool) -> None:
        """Stop it for a moment, or let it go on."""
        if self.is_resting != is_resting:
            self.is_resting = is_resting
            kill(self.pid, signal.SIGSTOP if is_resting else signal.SIGCONT)

    def take_news(self) -> None:
        """What it has said."""
        try:
            said = self.control.recv(1 << 12)
        except OSError:
            said = b""
        if said[:1] == b"+":
            self.is_ready = True
            self.rest(False)
        elif said == b"started\n":
            self.is_taken = True
        elif said[:1] == b"-":
            self.why = said[1:].decode(errors="replace").strip()
            print(self.why, flush=True)


class Keeper:
    """All of a node's."""

    def __init__(self, name: str, mark: str, node: str, hook: str, is_careful: bool) -> None:
        self.mark, self.node, self.is_careful = mark, node, is_careful
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(b"\0" + name.encode())
        self.server.listen(64)
        self.starter: Optional[socket.socket] = None    # node/ranks.py
        self.asked: set[int] = set()                    # parked that it knows to be ranks
        self.parked: dict[int, StandIn] = {}
        self.hook = hook_of(hook)
        self.waiting: list[tuple[int, LivingRank]] = []       # those that are not started yet
        self.count = 0
        self.living: list[int] = []                     # the ranks' pids
        self.alone_s: Optional[float] = None               # since when none of them lives
        self.find_at, self.find_until = time.monotonic(), time.monotonic() + FIND_FOR_S

    def run(self) -> NoReturn:
        """Until the starter of the ranks has gone, or the parent."""
        while True:
            self._reap()
            if not self.starter:
                self._begin()
                self._end_if_forgotten()
            living = {one.control: one for one in self.parked.values() if one.status is None}
            socks = [self.server, *living, *([self.starter] if self.starter else [])]
            for sock in select.select(socks, [], [], self._pause_s())[0]:
                if sock is self.server:
                    with contextlib.suppress(OSError):
                        self._answer(self.server.accept()[0])
                elif sock is self.starter:
                    self._obey(sock.recv(1 << 10))
                else:
                    living[sock].take_news()

    def _end_if_forgotten(self) -> None:
        """End where the host that would launch is dead: nobody closes the shell's input then."""
        if not self.living or any(os.path.exists("/proc/%d" % pid) for pid in self.living):
            self.alone_s = None
        elif self.alone_s is None:
            self.alone_s = time.monotonic()
        elif time.monotonic() - self.alone_s > FORGOTTEN_S:
            os._exit(0)

    def _pause_s(self) -> float:
        """Until the next look; the one that imports works and rests meanwhile."""
        busy = next((one for one in self.parked.values() if not one.is_ready and one.status is None), None)
        if busy is None:
            return 0.2 if self.starter or self.waiting else FIND_EVERY_S
        busy.rest(not busy.is_resting and not self.starter)
        return REST_S if busy.is_resting else WORK_S

    def _begin(self) -> None:
        """Find the living ranks, and start a stand-in for the next one of them."""
        if not self.count:
            if self.find_at <= time.monotonic() < self.find_until:
                self.find_at = time.monotonic() + FIND_EVERY_S
                self.waiting = self._find()
                self.count, self.living = len(self.waiting), [rank.pid for _, rank in self.waiting]
        elif self.waiting and all(one.is_ready or one.status is not None for one in self.parked.values()):
            number, rank = self.waiting.pop(0)
            exe, options = rank.exe(), rank.options()
            if exe is not None and options is not None and self._has_room():
                with contextlib.suppress(OSError):   # it has ended
                    self.parked[number] = StandIn(rank, exe, options, self.hook)

    def _find(self) -> list[tuple[int, LivingRank]]:
        """The living ranks by their local numbers, once all are there."""
        ranks: dict[int, LivingRank] = {}
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                if name.isdigit() and os.stat("/proc/" + name).st_uid == os.getuid():
                    rank = LivingRank(int(name))
                    if rank.is_of(self.mark, self.node):
                        ranks[int(rank.env["LOCAL_RANK"])] = rank
        size = next((rank.env.get("LOCAL_WORLD_SIZE", "") for rank in ranks.values()), "")
        return sorted(ranks.items()) if str(len(ranks)) == size else []

    def _has_room(self) -> bool:
        sizes = [memory_of(one.pid) for one in self.parked.values() if one.status is None]
        return not (self.is_careful and sizes) or free_bytes() > BASE_FREE * self.count * max(sizes)

    def _answer(self, sock: socket.socket) -> None:
        uid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        sock.settimeout(1.0)
        try:
            verb, _, number = sock.recv(64).decode().strip().partition(" ")
        except (OSError, ValueError):
            verb = number = ""
        one = self.parked.get(int(number)) if number.isdigit() else None
        if uid != os.getuid() or verb not in ("start", "look", "enter", "end"):
            sock.close()
        elif verb == "start":
            self.starter = sock
            signal.signal(signal.SIGTERM, signal.SIG_IGN)   # from here on it ends with the starter
            for other in self.parked.values():
                if not other.is_ready and other.status is None:
                    kill(other.pid, signal.SIGKILL)
            self._offer(sock)
        elif verb == "look":   # of people, and of tests
            self._offer(sock)
            sock.close()
        elif verb == "enter" and one is not None and one.is_ready and not one.is_offered and one.status is None:
            one.is_offered = True
            sock.setblocking(True)   # which goes with it
            sock.send(b"free\n")
            one.control.sendmsg([b"caller\n"], [(*SOL, struct.pack("i", sock.fileno()))])
            sock.close()
        elif verb == "end" and one is not None:
            self._end(one, sock)
        else:
            sock.close()

    def _offer(self, sock: socket.socket) -> None:
        ready = [number for number, one in self.parked.items() if one.is_ready and one.status is None]
        whys = [one.why or "not ready" for one in self.parked.values() if not one.is_ready]
        sock.sendall(" ".join(("parked", *map(str, ready))).encode() + b"\n")
        if self.starter is not sock:
            sock.sendall("\n".join(whys).encode(errors="replace"))

    def _end(self, one: StandIn, sock: socket.socket) -> None:
        """End one that may have begun or not."""
        if select.select([one.control], [], [], 0)[0]:
            one.take_news()
        if not one.is_taken and one.status is None:
            kill(one.pid, signal.SIGSTOP)   # it can say nothing any more
            time.sleep(0.05)
            if select.select([one.control], [], [], 0)[0]:
                one.take_news()
            kill(one.pid, signal.SIGCONT if one.is_taken else signal.SIGKILL)
            one.status = None if one.is_taken else os.waitpid(one.pid, 0)[1]
        sock.send(b"taken\n" if one.is_taken else b"ended\n")
        sock.close()

    def _obey(self, word: bytes) -> None:
        """The starter asks whether a rank is one of the parked."""
        if not word:
            os._exit(0)
        for text in word.decode().split():
            one = self.parked.get(int(text))
            if one is not None and select.select([one.control], [], [], 0)[0]:
                one.take_news()
            pid = one.pid if one is not None and one.is_taken else 0
            self._tell("rank", int(text), pid)
            if pid:
                self.asked.add(int(text))
        self._reap()

    def _tell(self, what: str, *numbers: int) -> None:
        if self.starter is not None:
            self.starter.sendall(" ".join((what, *map(str, numbers))).encode() + b"\n")

    def _reap(self) -> None:
        for one in self.parked.values():
            if one.status is None:
                pid, status = os.waitpid(one.pid, os.WNOHANG)
                one.status = status if pid else None
        for number in list(self.asked):
            ended = self.parked[number].status
            if ended is not None:
                self.asked.discard(number)
                self._tell("ended", self.parked[number].pid, ended)


def kill(pid: int, number: int) -> None:
    """Signal a child that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def hook_of(text: str) -> int:
    """A file in memory that Python's path can name: the hook, as `sitecustomize` in an archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("sitecustomize.py", text)
    fd = os.memfd_create("parked", 0)
    os.write(fd, data.getvalue())
    return fd


def free_bytes() -> float:
    """What the node and its control group have left."""
    with open("/proc/meminfo") as meminfo:
        fields = dict(line.split(":") for line in meminfo)
    free = float(fields["MemAvailable"].split()[0]) * 1024
    with open("/proc/self/cgroup") as groups:
        for line in groups:
            _, controllers, path = line.strip().split(":", 2)
            v2, root = not controllers, "/sys/fs/cgroup" + ("" if not controllers else "/memory")
            if not v2 and "memory" not in controllers.split(","):
                continue
            while path not in ("/", ""):
                try:
                    with open(root + path + ("/memory.max" if v2 else "/memory.limit_in_bytes")) as limit, \
                            open(root + path + ("/memory.current" if v2 else "/memory.usage_in_bytes")) as usage:
                        free = min(free, float(limit.read()) - float(usage.read()))
                except (OSError, ValueError):
                    pass
                path = os.path.dirname(path)
    return free


def memory_of(pid: int) -> int:
    """Bytes that a process holds."""
    with open("/proc/%d/statm" % pid) as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def prctl(option: int, value: int) -> None:
    """prctl(2)."""
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main(name: str, mark: str, parent: int) -> NoReturn:
    """Never returns."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    for name_of in ("SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE"):
        signal.signal(getattr(signal, name_of), signal.SIG_IGN)
    keeper = Keeper(name, mark, os.environ.get("SLURMD_NODENAME", ""), os.environ["SAFELAUNCH_HOOK"],
                    os.environ.get("SAFELAUNCH_CARE") == "yes")
    keeper.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
