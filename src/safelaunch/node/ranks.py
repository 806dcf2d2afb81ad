"""Starts the ranks of a node in torchrun's place (`launch.torchrun: direct`), with the environment that torchrun sets.

It travels as text: `python3 -ISc "import os; exec(os.environ.pop('SAFELAUNCH_RANKS'))" torchrun … --no_python COMMAND`.
torchrun itself imports PyTorch, 2 s of processor time on each node and in each restart, before a rank starts.

As under torchrun a rank has a session of its own, its lines begin with "[host:N]:", and the first rank that fails ends
the others: by TERM, and by KILL after GRACE_S. The last words have torchrun's form, which `why` and people read. What
torchrun can do beyond that is refused beside `direct` (config/rules.py). Standard library, Python 3.9; few
modules, since their import is a part of each restart.
"""

from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping
    from typing import Any, NoReturn, Optional
else:
    import _signal as signal  # its enums take 4.5 ms of each restart

GRACE_S = 5.0        # between TERM and KILL behind a failure; the leader gives no more (decide/facts/actions.py)
TOLD_GRACE_S = 30.0  # the same where somebody has ended this process: torchrun's shutdown_timeout
DRAIN_S = 1.0        # for the lines of what a rank has left behind; its guard ends that
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
LONGEST_LINE = 1 << 20
OTHERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)   # for the ranks, or to wake up; they end nothing here
KEEPER_S = 5.0       # for an answer of the keeper of parked interpreters
LAST_LINE = '\n"${SL_KEPT[@]}"'   # of a rank's shell: the training (node/command.sh)
# ... where that is Python, and no function or alias: node/warm/enter.py in its place.
ENTER = """{ case ${SL_KEPT[0]-} in python|python3|python3.*|*/python|*/python3|*/python3.*)
[[ $(type -t "${SL_KEPT[0]}") != file ]] ||
SL_KEPT=('%s' -ISc 'import os; exec(os.environ.pop("SAFELAUNCH_ENTER"))' %s %d "${SL_KEPT[@]}")
esac; } 2>/dev/null""".replace("||\n", "|| ").replace(")\nesac", "); esac").replace("\n", " ")


def world_of(env: Mapping[str, str]) -> tuple[int, int, int]:
    """(number of this node, nodes, ranks a node)."""
    return int(env["SLURM_NODEID"]), int(env["SLURM_NNODES"]), int(env["SAFELAUNCH_NPROC_PER_NODE"])


def rank_variables(env: Mapping[str, str], local_rank: int, role: str) -> dict[str, str]:
    """What torchrun 2.13 adds for a rank, but two (tests/node/test_ranks.py): nobody reads TORCHELASTIC_ERROR_FILE
    here, and rank 0 holds the store that torchrun's first agent would hold. Each node has a role of its own.
    """
    node, nodes, count = world_of(env)
    own = {"RANK": str(node * count + local_rank), "WORLD_SIZE": str(nodes * count),
           "LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(count),
           "ROLE_RANK": str(local_rank), "ROLE_WORLD_SIZE": str(count),
           "GROUP_RANK": str(node), "GROUP_WORLD_SIZE": str(nodes), "ROLE_NAME": role,
           "MASTER_ADDR": env["MASTER_ADDR"], "MASTER_PORT": env["MASTER_PORT"],
           "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "none",
           "TORCHELASTIC_USE_AGENT_STORE": "False", "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
           "TORCH_NCCL_ASYNC_ERROR_HANDLING": env.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")}
    if count > 1:
        own["OMP_NUM_THREADS"] = env.get("OMP_NUM_THREADS", "1")
    return own


class RankStream:
    """A rank's stdout or stderr, handed on by whole lines with the rank's name before each."""

    def __init__(self, fd: int, target: int, prefix: bytes) -> None:
        self.fd, self.target, self.prefix = fd, target, prefix
        self.rest = b""
        self.ends_by_return = False

    def pass_on(self) -> bool:
        """Read once; whether more can come."""
        data = os.read(self.fd, 1 << 16)
        if not data:
            self.flush()
            return False
        if self.ends_by_return and data[:1] == b"\n":   # the second half of a "\r\n"
            data = data[1:]
        # A progress bar ends its lines by a carriage return.
        self.ends_by_return = data[-1:] == b"\r"
        lines = (self.rest + data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")).split(b"\n")
        self.rest = lines.pop()
        self._write(lines)
        if len(self.rest) > LONGEST_LINE:
            self.flush()
        return True

    def flush(self) -> None:
        """Write what has no line end yet, as a line."""
        self._write([self.rest] if self.rest else [])
        self.rest = b""

    def _write(self, lines: list[bytes]) -> None:
        data = b"".join(self.prefix + line + b"\n" for line in lines)
        try:   # whoever reads the log may be gone, and the ranks train on
            while data:
                data = data[os.write(self.target, data):]
        except OSError:
            pass


class WarmRanks:
    """The keeper of this node's parked interpreters (node/warm): which ranks they may become, and how those end."""

    def __init__(self, name: str, enter: str, command: list[str]) -> None:
        self.name, self.enter = name, enter
        self.offered: set[int] = set()   # ranks whose shell may hand over to one
        self.pids: set[int] = set()      # parked that have become ranks
        self.rest = b""
        self.sock: Any = None
        is_plain = len(command) > 2 and command[2].endswith(LAST_LINE)
        if not (name and enter and is_plain):
            return
        socket = __import__("_socket")
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(KEEPER_S)
            self.sock.connect(b"\0" + name.encode())
            self.sock.send(b"start\n")
            self.offered = set(self._wait_for("parked")[1:])
        except (OSError, ValueError):
            self.sock = None

    def command(self, command: list[str], local_rank: int) -> list[str]:
        """The shell of a rank, which may hand over."""
        if local_rank not in self.offered:
            return command
        text = command[2][:-len(LAST_LINE)] + ENTER % (sys.executable, self.name, local_rank) + LAST_LINE
        return [*command[:2], text, *command[3:]]

    def pid_of(self, local_rank: int) -> int:
        """The parked process that has become this rank; 0: none has."""
        if local_rank not in self.offered:
            return 0
        self.offered.discard(local_rank)
        try:
            self.sock.send(b"%d\n" % local_rank)
            pid: int = self._wait_for("rank")[2]
        except (OSError, ValueError):
            return 0
        self.pids |= {pid} - {0}
        return pid

    def read(self) -> None:
        """What the keeper says. Where it has ended, all of its own have: they die with it."""
        try:
            data = self.sock.recv(1 << 12)
        except OSError:
            data = b""
        self.rest += data
        if not data:
            self.sock = None
            self.rest += b"".join(b"ended %d %d\n" % (pid, signal.SIGKILL) for pid in self.pids)

    def ended(self) -> list[tuple[int, int]]:
        """(pid, wait status) of those of which that is known by now."""
        found = [(words[1], words[2]) for words in map(_numbers, self._lines()) if words[0] == "ended"]
        self.pids -= {pid for pid, _ in found}
        return found

    def _lines(self) -> list[str]:
        *lines, self.rest = self.rest.split(b"\n")
        return [line.decode() for line in lines]

    def _wait_for(self, word: str) -> list[Any]:
        """The next such line; what else comes stays to be read."""
        others: list[str] = []
        while True:
            for line in self._lines():
                if line.startswith(word):
                    self.rest = "".join(other + "\n" for other in others).encode() + self.rest
                    return _numbers(line)
                others.append(line)
            data = self.sock.recv(1 << 12)
            if not data:
                raise OSError("the keeper has gone")
            self.rest += data


def _numbers(line: str) -> list[Any]:
    word, *numbers = line.split()
    return [word, *map(int, numbers)]


class LocalRanks:
    """The ranks of this node; `run` returns when all have ended."""

    def __init__(self, env: Mapping[str, str], command: list[str]) -> None:
        self.command = command
        # Python hides whether its shell ignores SIGPIPE.
        has_traps = "trap" in env.get("SAFELAUNCH_COMMAND", "") + env.get("SAFELAUNCH_SETUP", "")
        self.warm = WarmRanks(
            "" if has_traps else env.get("SAFELAUNCH_WARM", ""), env.get("SAFELAUNCH_ENTER", ""), command)
        self.host = env.get("SAFELAUNCH_NODE") or os.uname().nodename.partition(".")[0]
        self.env = {key: value for key, value in env.items() if key not in ("SAFELAUNCH_WARM", "SAFELAUNCH_ENTER")}
        self.local: dict[int, int] = {}            # pid → local rank, of those that run
        self.streams: dict[int, RankStream] = {}       # by descriptor
        self.first: Optional[tuple[int, int, int, float]] = None   # to fail: local rank, pid, wait status, when
        self.told = 0                              # the signal by which somebody has ended this process
        self.kill_at: Optional[float] = None
        self.wake_r, wake_w = os.pipe()
        for fd in (self.wake_r, wake_w):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        for number in (*ENDINGS, *OTHERS):
            signal.signal(number, self._take_signal)

    def _take_signal(self, number: int, frame: Any) -> None:
        if number in ENDINGS and not self.told:
            self.told = number

    def start(self, local_rank: int) -> None:
        """Start one rank."""
        prefix = ("[%s:%d]:" % (self.host, local_rank)).encode()
        pipes = [os.pipe(), os.pipe()]
        pid = os.fork()
        if pid == 0:
            self._become(local_rank, [write for _, write in pipes])
        self.local[pid] = local_rank
        for target, (read, write) in enumerate(pipes, 1):
            os.close(write)
            self.streams[read] = RankStream(read, target, prefix)

    def _become(self, local_rank: int, outputs: list[int]) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            for number in (*ENDINGS, *OTHERS, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            for target, fd in enumerate(outputs, 1):
                os.dup2(fd, target)
            env = {**self.env, **rank_variables(self.env, local_rank, self.host + ":")}
            command = self.warm.command(self.command, local_rank)
            if command is not self.command:
                env["SAFELAUNCH_ENTER"] = self.warm.enter
            os.execvpe(command[0], command, env)  # noqa: S606 - not a shell's text: the rank itself
        except OSError as error:
            os.write(2, ("safelaunch: cannot start %s: %s\n" % (self.command[0], error)).encode())
        finally:
            os._exit(127)

    def run(self) -> int:
        """Exit code of the first rank that failed, as a shell gives it; 128 and the signal where one ended this."""
        while self.local:
            wait_s = None if self.kill_at is None else max(0.0, self.kill_at - time.monotonic())
            self._turn(0.0 if self.warm.rest else wait_s)
            self._reap()
            if self.told and self.kill_at is None:
                self._end(self.told, TOLD_GRACE_S)
            elif self.kill_at is not None and time.monotonic() >= self.kill_at:
                self._end(signal.SIGKILL, TOLD_GRACE_S)
        end = time.monotonic() + DRAIN_S
        while self.streams and time.monotonic() < end:
            self._turn(end - time.monotonic())
        for stream in self.streams.values():
            stream.flush()
        if self.first is None or self.told:
            return 128 + self.told if self.told else 0
        return self._tell(*self.first)

    def _turn(self, wait_s: Optional[float]) -> None:
        keeper = self.warm.sock
        for fd in select.select([self.wake_r, *self.streams, *([keeper] if keeper else [])], [], [], wait_s)[0]:
            if fd == self.wake_r:
                os.read(fd, 4096)
            elif fd is keeper:
                self.warm.read()
            elif not self.streams[fd].pass_on():
                os.close(fd)
                del self.streams[fd]

    def _reap(self) -> None:
        for ended in self.warm.ended():
            self._note_end(*ended)
        while self.local:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:   # those that are left are the keeper's
                return
            if pid == 0:
                return
            self._note_end(pid, status)

    def _note_end(self, pid: int, status: int) -> None:
        local_rank = self.local.pop(pid, None)
        if local_rank is None:
            return
        if not status and (warm := self.warm.pid_of(local_rank)):
            self.local[warm] = local_rank
        elif status and self.kill_at is None and not self.told:
            self.first = (local_rank, pid, status, time.time())
            self._end(signal.SIGTERM, GRACE_S)

    def _end(self, number: int, grace_s: float) -> None:
        self.kill_at = time.monotonic() + grace_s
        for pid in self.local:
            try:  # noqa: SIM105 - contextlib takes 4 ms of each restart to import
                os.killpg(pid, number)   # its session, as torchrun does
            except OSError:
                pass

    def _tell(self, local_rank: int, pid: int, status: int, at: float) -> int:
        """The last words, as torchrun has them; the exit code."""
        node, _, count = world_of(self.env)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        name = next((name for name in dir(signal) if name.startswith("SIG") and name[3] != "_"
                     and getattr(signal, name) == -code), "signal %d" % -code)
        why = "Signal %d (%s) received by PID %d" % (-code, name, pid) if code < 0 else "in the lines of this rank"
        sys.stderr.write(
            "safelaunch: ChildFailedError: a rank has failed, and the others of this node were ended\n"
            "Root Cause (first observed failure):\n[0]:\n  time      : %s\n  host      : %s\n"
            "  rank      : %d (local_rank: %d)\n  exitcode  : %d (pid: %d)%s\n  traceback : %s\n" % (
                time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(at)), self.host, node * count + local_rank,
                local_rank, code, pid, "  (%s)" % name if code < 0 else "", why))
        sys.stderr.flush()
        return code if code > 0 else 128 - code


def main(words: list[str]) -> NoReturn:
    """`words`: torchrun's own, and behind --no_python the command of a rank. Never returns."""
    ranks = LocalRanks(os.environ, words[words.index("--no_python") + 1:])
    count = world_of(os.environ)[2]
    if count > 1 and "OMP_NUM_THREADS" not in os.environ:
        sys.stderr.write("safelaunch: OMP_NUM_THREADS=1 for each rank, as torchrun sets it; env: can set another\n")
    for local_rank in range(count):
        ranks.start(local_rank)
    code = ranks.run()
    os._exit(code)   # at once: the guard waits for it


if __name__ == "__main__":
    main(sys.argv[2:])
