"""The node guard: parent of the launcher on each node, and the fence of its ranks.

Travels as text in the environment of srun (`python3 -I -S -c "$SAFELAUNCH_GUARD" COMMAND…`), so that neither a shared
folder nor a file on the node is needed to start it; once started it lives in memory only. Standard library, Python 3.9.

Law 1, never worse than plain srun: whatever fails in here before the launcher runs ends in `exec` of the launcher, and
whatever fails later in a plain wait for it. The exit code is always the launcher's own.

What it does beside waiting:
- keeps a connection to the leader (HMAC-SHA256 both ways over a shared token) and says when the launcher and all its
  descendants have gone: it is their subreaper, so that a daemonised rank is still its child;
- signals, on the leader's word, only processes whose SigCgt mask holds the signal: one without a handler dies of it;
- the orphan's end: when leader and standby are both gone, and nobody outside is awake, the job would keep its nodes
  until its time limit; after ORPHAN_S without a word and with a pulse that stands still, it cancels the job, and the
  run goes on in its next one;
- last words: when the launcher has gone and the leader's host answers no more, the first guard of the node stays until
  it is heard or somebody else is seen to lead, so that there is one left to end an orphaned job;
- the fence: when it has heard nobody for `lease_s` (old words that come late do not count) and the attempt's record has
  moved on (or, after a lost connection, cannot be read), it ends its own ranks, so that they never write beside their
  successors.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import sys
import time

from safelaunch.node.wire import MAX_GREETING, MAX_LINE, MOST_NAMES, Session, from_leader, introduce, is_welcome

# The start of every rank waits for what is imported here. The modules in LATER take 12 ms.
LATER = ("hmac", "json")
TYPE_CHECKING = False   # as typing's own, whose import takes 2.4 ms
if TYPE_CHECKING:
    import json
    import signal
    import socket
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import suppress
    from typing import Any
else:
    # The same functions and numbers without their enums: socket takes 7.6 ms and signal 4.5, these take 0.4 each.
    import _signal as signal
    import _socket as socket

    class suppress:   # noqa: N801
        """As contextlib's, whose import takes 4 ms."""

        def __init__(self, *kinds):
            self.kinds = kinds

        def __enter__(self):
            return None

        def __exit__(self, kind, error, trace):
            return kind is not None and issubclass(kind, self.kinds)

TICK_S = 0.25
RETRY_S = 1.0          # between two tries to reach the leader
CONNECT_S = 3.0        # for a connection, where the leader has more addresses: a firewall drops packets in silence
STICK_S = 5.0          # to the address at which it was heard last: a leader that is born again has the same
SWITCH_MARGIN_S = 2.0  # above the lease, and below the leader's own wait for it (adapters.fence: 5 s)
F_SETSIG = 10          # linux/fcntl.h
LAST_WORDS_S = 1.0     # for a leader that is being born again, too
KNOWN_S = 1.0          # how old the list of ranks to stop at once may be
LOOK_S = 3.0           # of silence before the record is looked at: a standby may have taken over, and has another door
ASK_SHARE = 0.6        # of LOOK_S: so old may the last answered question be before another is asked
RECORD_CHECK_S = 1.0   # between two such looks
PROBE_DEADLINE_S = 2.0
START_LOOK_S = 1.0     # at the record, before the launcher starts
LET_START_S = 0.05     # for the launcher, before this guard takes processor time for its own imports
TOO_LATE = 75          # exit code of a guard whose attempt is over before it begins (EX_TEMPFAIL)
ORPHAN_S = 150.0       # far above a takeover (20 s), a leader's rebirth, and a minute's outage of everything
ORPHAN_READS = 20      # looks at a pulse that stands still
ORPHAN_STAGGER_S = 20.0   # the node with the lowest number first
SQUEUE_S = 15.0        # for the question whether Slurm goes on running a job that nobody leads; less than the stagger
STAY_S = 900.0         # for last words that nobody hears: beyond the second try at an orphan's end
KMSG = "/dev/kmsg"
KERNEL_BEFORE_S = 60.0  # of its words: a GPU may have failed while nothing ran on it
KERNEL_READ_S = 0.05   # its buffer is read in 5-20 ms
KERNEL_LINES = 30
LEFTOVER_GRACE_S = 2.0  # for what the launcher left behind, between TERM and KILL
PR_SET_CHILD_SUBREAPER = 36
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# What rules of `why` know of hardware and file systems (core/why/rules). Processes that others lost on a shared node
# are none of ours: of the OOM killer's words only those count that name this job's cgroup. Loop devices are tests' own.
KERNEL_WORDS = (b"NVRM", b"Xid", b"mlx5", b"I/O error", b"EDAC", b"ardware Error", b"ardware error", b"mce:", b"nfs: ",
                b"NFS: ", b"Lustre", b"GPFS", b"EXT4-fs error", b"XFS (", b"ead-only", b"ink is down", b"ink is Down",
                b"nvidia", b"amdgpu", b"oom-kill:")
PRIVATE = ("SAFELAUNCH_GUARD", "SAFELAUNCH_GUARD_CODE", "SAFELAUNCH_TOKEN", "SAFELAUNCH_CONTROL",
           "SAFELAUNCH_ADDRESSES")


def main(argv: list[str]) -> int:
    """Exit code of the launcher `argv`, or of a sweep (`--sweep MARK GRACE_S`)."""
    if argv[:1] == ["--sweep"]:
        import_rest()
        sys.stdout.write(json.dumps(sweep(argv[1], float(argv[2]))) + "\n")
        return 0
    env = {key: value for key, value in os.environ.items() if key not in PRIVATE}
    try:
        guard = Guard(os.environ)
        if not is_nodes_own():   # its modules may lie in a folder that freezes
            guard.make_ready()
        if guard.is_too_late():
            return TOO_LATE
        guard.start(argv, env)
    except Exception:  # noqa: BLE001 - law 1: train without a guard
        restore_signals()
        os.execvpe(argv[0], argv, env)  # noqa: S606 - not a shell: the launcher itself
    try:
        guard.let_start()
        guard.make_ready()
        guard.run()
    except Exception as error:  # noqa: BLE001 - law 1: a bug in here must not end the training
        sys.stderr.write("safelaunch: node guard stopped guarding: %r\n" % (error,))
        guard.wait_plainly()
    return guard.exit_code


def is_nodes_own() -> bool:
    """Whether this interpreter lies on the node's own disk, as /usr does."""
    return sys.executable.startswith("/usr/")


def import_rest() -> None:
    """Import what only a guard needs whose launcher runs."""
    globals().update((name, __import__(name)) for name in LATER)


class Guard:
    """One task's guard; `run` returns when the launcher and all of its descendants have gone."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.node = env.get("SAFELAUNCH_NODE") or os.uname().nodename.split(".")[0]
        self.task = int(env.get("SLURM_PROCID", "0"))
        self.attempt = int(env["SAFELAUNCH_ATTEMPT"])
        self.lease_s = float(env.get("SAFELAUNCH_LEASE_S", "10"))
        self.look_s = min(LOOK_S, self.lease_s / 2)
        self.record = env["SAFELAUNCH_RECORD"]
        known = ",".join((env.get("SLURM_LAUNCH_NODE_IPADDR", ""), env.get("SAFELAUNCH_ADDRESSES", "")))
        self.link = Link(env["SAFELAUNCH_CONTROL"], known, env["SAFELAUNCH_TOKEN"],
                         {"node": self.node, "task": self.task, "attempt": self.attempt})
        self.launcher = 0
        self.exit_code = 1
        self.ended = False          # the launcher has been reaped
        self.is_childless = False   # nothing else came of it either
        self.gone = False           # and nothing of it is left
        self.kill_at: float | None = None   # monotonic: when TERM becomes KILL
        self.heard = self.proved = self.started_s = time.monotonic()   # proved: an answered question was asked then
        self.ticked = self.heard
        self.asked = -1.0           # when the last question was
        self.signalled: dict[int, dict[int, str]] = {}   # by signal and pid: who was sent it for the leader
        self.record_looked = 0.0
        self.looks_alone = False    # whether the look under way was begun after the lease had run out
        self.probe: RecordProbe | None = None   # the disposable child that reads the record
        self.hung: set[int] = set()             # such children that a KILL did not end: they sleep in D state
        self.stopped: tuple[int, ...] = ()      # ranks that this guard has stopped while it looks
        self.known: list[int] = []              # the ranks as they were a moment ago
        self.known_at = 0.0
        self.pulse: int | None = None           # the pulse's counter when it was last looked at,
        self.pulse_at = 0.0                     # since when it has been that,
        self.pulse_reads = 0                    # and how often it was
        self.canceller = 0                      # the child that cancels the orphaned job
        self.is_over = False                    # Slurm ends the step, or others see to this attempt
        self.is_first = env.get("SLURM_LOCALID", "0") == "0" and "SAFELAUNCH_LOCAL" not in env
        self.job = env.get("SLURM_JOB_ID", "") if self.is_first else ""
        self.orphan_s = ORPHAN_S + ORPHAN_STAGGER_S * int(env.get("SLURM_NODEID", "0"))
        self.wake_r, wake_w = os.pipe()
        for fd in (self.wake_r, wake_w):
            os.set_blocking(fd, False)
        adopt_orphans()
        self.switch = Switch(self.lease_s + SWITCH_MARGIN_S)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        self.is_told_alone = is_told_alone(env.get("SLURM_JOB_ID", ""))
        self.told: list[int] = []               # signals of Slurm's that the ranks are still to be told
        for name in ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT"):
            # Slurm signals every process of a step, or this one alone; the guard stays to see them go.
            signal.signal(getattr(signal, name), self._take_signal)

    def _take_signal(self, number: int, frame: Any) -> None:
        if number in ENDINGS:
            self.is_over = True
        if self.is_told_alone and number not in (signal.SIGCHLD, signal.SIGCONT):
            self.told.append(number)

    def _hand_on(self) -> None:
        """Tell the ranks what Slurm told this process alone: those that handle it, or all if it ends those that don't.
        """
        while self.told:
            number = self.told.pop(0)
            if not signal_handlers(self._ranks(), number) and number in ENDINGS:
                send(self._ranks(), number)

    def start(self, argv: list[str], env: dict[str, str]) -> None:
        """Start the launcher in this process group: leaving it would leave proctrack/pgid's container."""
        self.launcher = os.fork()
        if self.launcher == 0:
            try:
                restore_signals()
                signal.set_wakeup_fd(-1)
                os.execvpe(argv[0], argv, env)  # noqa: S606
            except OSError as error:
                os.write(2, ("safelaunch: cannot start %s: %s\n" % (argv[0], error)).encode())
            finally:
                os._exit(127)

    def is_too_late(self) -> bool:
        """Whether the attempt's record had moved on before this guard began: a node slept between launch and start.

        Another attempt may run by now. No answer within START_LOOK_S, or any other, lets the training start.
        """
        end = time.monotonic() + START_LOOK_S
        probe = RecordProbe(self.record, end, self.switch.forget_in_child)
        while not probe.has_ended(time.monotonic()):
            select.select([probe.fd], [], [], max(0.0, end - time.monotonic()))
        if not probe.close():
            self.hung.add(probe.pid)
        if b"ended" not in probe.data:
            return False
        import_rest()
        if probe.verdict()[0] != "ended":
            return False
        sys.stderr.write("safelaunch: guard of %s: attempt %d is over already: nothing is started\n" % (
            self.node, self.attempt))
        return True

    def let_start(self) -> None:
        """Wait for a moment, unless the launcher ends or Slurm signals it. A look that has ended is neither."""
        end = time.monotonic() + LET_START_S
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while not self.told and not self.is_over and os.waitid(os.P_PID, self.launcher, how) is None:
            if not select.select([self.wake_r], [], [], max(0.0, end - time.monotonic()))[0]:
                return
            os.read(self.wake_r, 4096)

    def make_ready(self) -> None:
        """Import what is left, and arm the switch: 10 to 20 ms of processor time which the launcher shall not wait for.
        """
        import_rest()
        self.switch.make()
        self.switch.rearm()

    def run(self) -> None:
        """Watch until nothing is left, then say so."""
        self.link.messages(time.monotonic())   # call now, not after the first sleep
        while not self.gone:
            self._turn()
        self.link.say({"ev": "gone", "code": self.exit_code})
        self.link.drain(LAST_WORDS_S)
        if self._is_unheard():
            until = time.monotonic() + STAY_S
            while self._is_unheard() and time.monotonic() < until:
                self._turn()
            self.link.drain(LAST_WORDS_S)
        if self.probe is not None:
            self.probe.close()
        self.link.end()

    def _turn(self) -> None:
        self._sleep()
        now = time.monotonic()
        self.switch.rearm()
        self._hold_if_woken(now)
        self._fence_if_alone(now)
        self._reap()   # first: of ranks that have gone, an order to end them needs no search
        for message in self.link.messages(now):
            self._hear(message, now)
            self._obey(message, now)
        self._hand_on()
        if not self.gone:
            self._finish_ranks(now)
        if now - self.known_at > KNOWN_S:
            self.known, self.known_at = near_descendants(os.getpid()), now
            self.switch.watch(self.known)
        self.ticked = time.monotonic()

    def _is_unheard(self) -> bool:
        """Nobody answers where the leader was, nor does anybody else lead, nor does Slurm end the step.

        A host that refuses or hangs up lives, and its shell sees srun's end; from one without power nothing comes.
        Were nobody left when both supervisors are dead, the job would keep its nodes until its limit (simulation).
        """
        is_silent = time.monotonic() - self.link.answered > self.look_s
        return bool(self.job) and self.link.greeted_ever and is_silent and not self.is_over

    def _sleep(self) -> None:
        fds_r: list[Any] = [self.wake_r]
        fds_w: list[Any] = []
        sock = self.link.sock
        if sock is not None:
            (fds_r if self.link.connected else fds_w).append(sock)
            if self.link.outbox:
                fds_w.append(sock)
        if self.probe is not None:
            fds_r.append(self.probe.fd)
        select.select(fds_r, fds_w, [], TICK_S if self.gone or not self.ended else 0.02)
        with suppress(BlockingIOError):
            os.read(self.wake_r, 4096)

    def _hear(self, message: dict[str, Any], now: float) -> None:
        """Take a word for a sign of life. After a silence it may be an old one: it waited for a cable to be mended, or
        for this node to wake up, and who said it is gone by now. Then only the answer to a question counts, and as of
        when that was asked. Questions are asked all the time: who has the leader's port could else make its pings late,
        more and more, and have the rest of them taken for life after its death.
        """
        asked = message.get("t")
        if isinstance(asked, float):
            self.proved = max(self.proved, min(asked, now))
            self.heard = max(self.heard, self.proved)
            return
        if now - min(self.heard, self.proved) <= self.look_s + TICK_S:
            self.heard = now
        if now - self.proved > self.look_s * ASK_SHARE:
            self.asked = now
            self.link.say({"ev": "pong", "t": now})

    def _obey(self, message: dict[str, Any], now: float) -> None:
        verb = message.get("do")
        if verb == "ping":
            if self.asked != now and "t" not in message:   # a question is an answer as well
                self.link.say({"ev": "pong"})
        elif verb == "signal":
            reached = self._signal_once(message["signal"])
            self.link.say({"ev": "signalled", "reached": reached[:MOST_NAMES]})
        elif verb == "end":
            self._end(now, float(message["grace_s"]))

    def _signal_once(self, number: int) -> list[str]:
        """Names of the processes that have been sent it, now or before: who has not heard all answers asks again."""
        known = self.signalled.setdefault(number, {})
        known.update(signal_handlers([pid for pid in self._ranks() if pid not in known], number))
        return list(known.values())

    def _end(self, now: float, grace_s: float) -> None:
        if self.kill_at is None:
            send(self._ranks(), signal.SIGTERM)
        self.kill_at = min(now + grace_s, self.kill_at if self.kill_at is not None else now + grace_s)

    def _reap(self) -> None:
        self.is_childless = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.is_childless = True   # nor is any descendant left: their orphans are children of this subreaper
                return
            if pid == 0:
                return
            self.hung.discard(pid)
            self.canceller = 0 if pid == self.canceller else self.canceller
            if self.probe is not None and pid == self.probe.pid:
                self.probe.reaped = True
            if pid == self.launcher:
                self.ended = True
                self.exit_code, number = exit_of(status)
                kernel = kernel_words(self.started_s - KERNEL_BEFORE_S) if self.exit_code else []
                self.link.say({"ev": "exited", "code": self.exit_code, "signal": number, "kernel": kernel})

    def _finish_ranks(self, now: float) -> None:
        left = None
        if self.kill_at is not None and now >= self.kill_at:
            left = self._ranks()
            send(left, signal.SIGKILL)
            self.kill_at = now + 1.0   # again, should a dying rank have forked meanwhile
        if self.ended:
            left = self._ranks() if left is None else left
            if not left:
                self.gone = True
            elif self.kill_at is None:
                self._end(now, LEFTOVER_GRACE_S)

    def _ranks(self) -> list[int]:
        """The living descendants, without this guard's own looks at the record."""
        if self.is_childless:
            return []
        own = self.hung | ({self.probe.pid} if self.probe is not None else set()) | {self.canceller}
        return [pid for pid in descendants(os.getpid()) if pid not in own]

    # --- the fence --------------------------------------------------------------------------------------------

    def _hold_if_woken(self, now: float) -> None:
        """This whole node was stopped and has woken up: hold the ranks before anything else, they may have successors.

        They wake with the guard, so every instant counts: the list of whom to stop is at hand.
        """
        if now - self.ticked > self.lease_s / 2 and not self.stopped:
            send(self.known, signal.SIGSTOP)
            self.stopped = tuple(self.known)
            self.record_looked = 0.0

    def _let_go(self) -> None:
        send(self.stopped, signal.SIGCONT)
        self.stopped = ()

    def _fence_if_alone(self, now: float) -> None:
        if self.probe is None:
            self.looks_alone = now - self.heard > self.lease_s   # what comes in meanwhile may be old: it slept
        if now - self.heard <= self.look_s and self.probe is None:
            self._let_go()
            return
        verdict = self._look(now)
        if verdict is None:
            return
        state, endpoint, pulse = verdict
        self._watch_pulse(now, state, pulse)
        if endpoint and now - self.heard > self.look_s:
            self.link.move(endpoint)
        unknown = state == "unreadable" and not self.link.greeted_ever
        if not self.looks_alone or state in ("live", "missing") or unknown:
            if state != "ended":
                self._let_go()
            return
        if self.gone:
            self.is_over = True
            return
        sys.stderr.write("safelaunch: guard of %s: heard nobody for %.1f s and the attempt's record is %s: "
                         "ending its ranks\n" % (self.node, now - self.heard, state))
        send(self._ranks(), signal.SIGKILL)
        self.stopped = ()
        self.kill_at = now

    def _watch_pulse(self, now: float, state: str, pulse: int | None) -> None:
        """End a job that nobody leads: the attempt is not over, nobody speaks, and the pulse does not move."""
        if pulse is None or state != "live":
            return   # a folder that does not answer tells nothing
        if self.gone and self.pulse_at > self.heard and pulse != self.pulse:
            self.is_over = True   # somebody leads who does not hear this guard: srun tells him
        if pulse != self.pulse or now - self.heard < self.look_s + 1.0:
            self.pulse, self.pulse_at, self.pulse_reads = pulse, now, 0
        self.pulse_reads += 1
        is_orphan = min(now - self.heard, now - self.pulse_at) > self.orphan_s and self.pulse_reads >= ORPHAN_READS
        if not is_orphan or not self.job or self.canceller:
            return
        self.orphan_s += 600.0   # should it not help
        sys.stderr.write("safelaunch: guard of %s: no supervisor has been heard or seen for %.0f s: cancelling job %s, "
                         "so that the run goes on in its next one\n" % (self.node, now - self.heard, self.job))
        with suppress(OSError):
            self.canceller = os.fork()
            if self.canceller == 0:
                self._cancel_orphan()

    def _cancel_orphan(self) -> None:
        """In a child: leave word that this is no person's cancel, free the next job, then cancel.

        The next job waits for this one's end, and this one hangs in COMPLETING while a node of it is silent, for 440 s
        (measured). Its name still keeps it back until the cancel, and its supervisor waits for all leases.
        """
        try:
            self.switch.forget_in_child()
            restore_signals()
            signal.set_wakeup_fd(-1)
            if not self._is_to_be_cancelled():
                return
            folder = os.path.join(os.path.dirname(self.record), "..", "..")
            leave_word(os.path.join(folder, "control", "orphaned-" + self.job),
                       "%s %s\n" % (self.node, time.strftime("%Y-%m-%dT%H:%M:%S%z")))
            with suppress(OSError, ValueError, LookupError, TypeError), open(
                    os.path.join(folder, "pulse.json")) as pulse:
                os.spawnvp(os.P_WAIT, "scontrol", [  # noqa: S606
                    "scontrol", "update", "JobId=%d" % int(json.load(pulse)["successor"]), "Dependency=singleton"])
            os.execvp("scancel", ["scancel", self.job])  # noqa: S606
        finally:
            os._exit(1)

    def _is_to_be_cancelled(self) -> bool:
        """Whether Slurm goes on running the job. A person's cancel that cannot reach silent nodes must not be taken for
        this guard's, and without an answer a cancel of its own would not be heard either (simulated).
        """
        import subprocess  # 5 ms, and 2 MB for as long as the guard lives
        try:
            told = subprocess.run(["squeue", "--noheader", "--format=%T", "--jobs=" + self.job],
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=SQUEUE_S, check=False)
        except FileNotFoundError:
            return True
        except (OSError, subprocess.SubprocessError):
            return False
        return told.returncode == 0 and told.stdout.split() == [b"RUNNING"]

    def _look(self, now: float) -> tuple[str, tuple[str, int] | None, int | None] | None:
        """The record's state and endpoint once known; at most one child sleeps on a frozen folder, not one a second."""
        if self.probe is None:
            if now - self.record_looked < RECORD_CHECK_S:
                return None
            self.record_looked = now
            if self.hung:
                return "unreadable", None, None
            try:
                # One guard of a node looks afresh for all: they have one NFS client. Who may have slept does so itself.
                afresh = bool(self.is_first or self.stopped)
                self.probe = RecordProbe(self.record, now + PROBE_DEADLINE_S, self.switch.forget_in_child, afresh)
            except OSError:   # no process or descriptor left
                return "unreadable", None, None
        probe = self.probe
        if not probe.has_ended(now):
            return None
        if not probe.close():
            self.hung.add(probe.pid)
        self.probe = None
        return probe.verdict()

    def wait_plainly(self) -> None:
        """Wait for the launcher as a shell would, forwarding nothing: after a bug in here."""
        self.switch.disarm()
        send(self.stopped, signal.SIGCONT)
        while not self.ended:
            try:
                pid, status = os.waitpid(self.launcher, 0)
            except ChildProcessError:
                return
            if pid == self.launcher:
                self.ended = True
                self.exit_code = exit_of(status)[0]


class Link:
    """The connection to the leader, as node.wire has its lines: never blocking, reconnecting for ever.

    A host is one address or several, "10.1.0.5,10.2.0.5", which are tried in turn: of a node's networks one may be
    closed to other nodes.
    """

    def __init__(self, control: str, launch_address: str | None, token: str, who: dict[str, Any]) -> None:
        host, _, port = control.rpartition(":")
        self.first_host = host or launch_address or ""
        self.hosts = hosts_of(self.first_host)
        self.address = (self.hosts[0], int(port))
        self.began_at = self.greeted_at = time.monotonic() - STICK_S
        self.token = token.encode()
        self.who = who
        self.sock: socket.socket | None = None
        self.connected = self.greeted_ever = False
        self.inbox, self.outbox = b"", b""
        self.unsent: list[dict[str, Any]] = []   # what a reborn leader must hear again
        self.nonces = ""
        self.session: Session | None = None      # once both sides have proved themselves
        self.try_at = 0.0
        self.answered = time.monotonic()         # the last sign of life from where the leader was

    @property
    def greeted(self) -> bool:
        """Whether this is the leader's own line."""
        return self.session is not None

    def move(self, endpoint: tuple[str, int]) -> None:
        """Use another address from now on: a supervisor was born again elsewhere, and this one has been silent."""
        hosts = hosts_of(endpoint[0] or self.first_host)
        if (hosts, endpoint[1]) != (self.hosts, self.address[1]):
            self.hosts, self.address = hosts, (hosts[0], endpoint[1])
            self.greeted_at = time.monotonic() - STICK_S
            self._drop()

    def say(self, message: dict[str, Any]) -> None:
        """Send now, or as soon as somebody listens."""
        if self.session is not None:
            self.outbox += self.session.seal(json.dumps(message).encode())
            self._flush()
        if message.get("ev") in ("exited", "gone"):
            self.unsent.append(message)

    def drain(self, deadline_s: float) -> None:
        """Get the last words out, if anybody listens; of a rank that died at once they come before the connection.

        Unsaid, the others' ends are all that the leader hears, and it blames the first of those.
        """
        now = time.monotonic()
        end = now + deadline_s
        while now < end and (self.outbox or not self.greeted):
            self.messages(now)
            if self.sock is None:
                break   # nobody is there, or not any more
            is_idle = self.connected and not self.outbox
            select.select([self.sock] if is_idle else [], [] if is_idle else [self.sock], [], 0.1)
            self._flush()
            now = time.monotonic()

    def end(self) -> None:
        """Nothing more will be said."""
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)

    def messages(self, now: float) -> list[dict[str, Any]]:
        """Messages from the leader that have come since the last call."""
        if self.sock is None:
            if now >= self.try_at:
                self._connect(now)
            return []
        if not self.connected and not self._finish_connect(self.sock):
            if self.sock is not None and len(self.hosts) > 1 and now - self.began_at > CONNECT_S:
                self._drop()
            return []
        return self._read(self.sock)

    def _connect(self, now: float) -> None:
        self.try_at, self.began_at = now + RETRY_S, now
        try:
            family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
            self.sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock.connect(self.address)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error.errno)

    def _finish_connect(self, sock: socket.socket) -> bool:
        _, writable, _ = select.select([], [sock], [], 0)
        if not writable:
            return False
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._fail(number)
            return False
        self.connected = True
        return True

    def _read(self, sock: socket.socket) -> list[dict[str, Any]]:
        try:
            while True:
                data = sock.recv(65536)
                self.answered = time.monotonic() if self.greeted or not data else self.answered
                if not data:
                    self._drop()
                    return []
                self.inbox += data
                if len(data) < 65536:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error.errno)
            return []
        lines = self.inbox.split(b"\n")
        self.inbox = lines.pop()
        if len(self.inbox) > (MAX_LINE if self.greeted else MAX_GREETING):
            self._drop()
            return []
        return [message for message in map(self._take, lines) if message is not None]

    def _take(self, line: bytes) -> dict[str, Any] | None:
        """What a line says; None where it says nothing: any other line than the leader's next one ends the connection.
        """
        message: dict[str, Any] | None = None
        if self.sock is None:
            return None
        if self.session is not None:
            text = self.session.unseal(line)
            message = from_leader(text) if text is not None else None
        elif not self.nonces:
            hello = introduce(self.token, self.who, line)
            if hello is not None:
                self.nonces, answer = hello
                self.outbox += answer
                self._flush()
                return None
        elif is_welcome(self.token, self.nonces, line):
            message = self._begin()
        if message is None:
            self._drop()
        return message

    def _begin(self) -> dict[str, Any]:
        self.session, self.greeted_ever = Session(self.token, self.nonces, is_leader=False), True
        self.answered = self.greeted_at = time.monotonic()
        for told in self.unsent:
            self.outbox += self.session.seal(json.dumps(told).encode())
        self._flush()
        return {"do": "hello"}

    def _flush(self) -> None:
        if not self.outbox or self.sock is None:
            return
        try:
            self.outbox = self.outbox[self.sock.send(self.outbox):]
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error.errno)

    def close(self) -> None:
        """Hang up, and do not call again unless asked for messages."""
        self._drop()

    def _fail(self, number: int | None) -> None:
        if number in (errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE):   # said by a living kernel
            self.answered = time.monotonic()
        self._drop()

    def _drop(self) -> None:
        if self.sock is not None:
            self.sock.close()
        now = time.monotonic()
        if self.greeted:
            self.greeted_at = now
        elif now - self.greeted_at >= STICK_S:
            self.address = (self.hosts[(self.hosts.index(self.address[0]) + 1) % len(self.hosts)], self.address[1])
        self.sock = None
        self.connected, self.session = False, None
        self.inbox, self.outbox, self.nonces = b"", b"", ""


def hosts_of(text: str) -> list[str]:
    """The addresses in a host's text, each once; this machine's own where there are none."""
    return list(dict.fromkeys(part for part in text.split(",") if part)) or ["127.0.0.1"]


class Switch:
    """The dead man's switch: ranks die with their guard, and a guard that has not run for `after_s` dies.

    A node that was stopped as a whole wakes as a whole: its ranks would write before any process of ours has run. So
    the kernel does it, while they are still stopped. A timer of the guard's own sends it SIGKILL, its death closes the
    write ends of two pipes, and each rank is the owner of read ends that answer that with SIGKILL (F_SETOWN, F_SETSIG,
    O_ASYNC; measured on Linux 6.18, where the higher descriptor closes first; the two pipes cover both orders).
    A guard in a frozen control group does not even die before it is thawed: for that there are `Fuses`.
    A guard that is kept from running by a frozen disk under its own code must not end anybody: the timer is armed only
    when its memory is locked, or its interpreter is the node's own.
    """

    MAX_RANKS = 128   # two descriptors each; the soft limit is 1024 nearly everywhere

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self.is_made = False
        self.readers: list[int] = []
        self.writers: list[int] = []
        self.ends: dict[int, tuple[int, ...]] = {}
        self.timer: Any = None
        self.fuses: Fuses | None = None

    def make(self) -> None:
        """Ask the kernel for all of it, once. A Python built without libffi has no ctypes: then there is no switch."""
        if self.is_made:
            return
        self.is_made = True
        try:
            import ctypes
        except ImportError:
            return
        self.ctypes, self.libc = ctypes, ctypes.CDLL(None, use_errno=True)
        locked = self.libc.mlockall(1) == 0   # MCL_CURRENT
        if not (locked or is_nodes_own()):
            return
        try:
            low, high = os.pipe(), os.pipe()
            top = fcntl.fcntl(high[1], fcntl.F_DUPFD_CLOEXEC, 4 * self.MAX_RANKS)
            os.close(high[1])
            self.readers, self.writers = [low[0], high[0]], [low[1], top]
            timer = ctypes.c_void_p()
            event = (ctypes.c_int * 16)(0, 0, signal.SIGKILL, 0)   # sigevent: value (8 bytes), signo, SIGEV_SIGNAL
            if self.libc.timer_create(1, event, ctypes.byref(timer)) == 0:   # CLOCK_MONOTONIC
                self.timer = timer
        except (OSError, AttributeError):
            self.timer = None
        with suppress(OSError, AttributeError):
            self.fuses = Fuses(self.after_s + KNOWN_S)

    def watch(self, pids: list[int]) -> None:
        """Tie these ranks to this process; those that have gone are let go."""
        if not self.writers:
            return
        for pid in [pid for pid in self.ends if pid not in pids]:
            for end in self.ends.pop(pid):
                os.close(end)
        for pid in pids:
            if pid not in self.ends and len(self.ends) < self.MAX_RANKS:
                with suppress(OSError):
                    self.ends[pid] = tuple(self._tie(reader, pid) for reader in self.readers)
        if self.fuses is not None:
            self.fuses.renew(pids[:self.MAX_RANKS])

    @staticmethod
    def _tie(reader: int, pid: int) -> int:
        end = os.open("/proc/self/fd/%d" % reader, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(end, fcntl.F_SETOWN, pid)
        fcntl.fcntl(end, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        return end

    def rearm(self) -> None:
        """This process runs: count from now."""
        self._set(self.after_s)

    def disarm(self) -> None:
        """Never end this process, nor its ranks while it lives."""
        self._set(0.0)
        if self.fuses is not None:
            self.fuses.remove()

    def _set(self, after_s: float) -> None:
        if self.timer is not None:
            whole = int(after_s)
            times = (self.ctypes.c_long * 4)(0, 0, whole, int((after_s - whole) * 1e9))
            self.libc.timer_settime(self.timer, 0, times, None)

    def forget_in_child(self) -> None:
        """A forked child must not keep the pipes open when its parent dies, nor fuses when it renews them."""
        for writer in self.writers:
            with suppress(OSError):
                os.close(writer)
        if self.fuses is not None:
            self.fuses.remove()


class Fuses:
    """SIGKILL for each rank once this process has not renewed it for `after_s`, sent by the kernel alone.

    `scontrol suspend` freezes a job in its control group where processes are tracked by cgroups. What is frozen there
    is not even killed before it is thawed (cgroup v1's freezer), and a guard that dies then is slower than a rank that
    writes: each of four ranks made a step 0.4 to 8 ms after the thaw, six times of six (measured on Linux 6.18). A rank
    that has a SIGKILL waiting for it makes none. Of what a user may have, only sockets have both a timer that runs
    while the process does not and a signal for another process: a connection to this process's own door, which drops
    all that has come over a router or more (IP_MINTTL: RFC 5082), fails after TCP_USER_TIMEOUT (tcp(7)), and its owner
    is the rank (F_SETOWN in fcntl(2)). A socket filter in its place is root's alone (EPERM, Linux 6.18). Nothing
    leaves the loopback device, and of the counters of dropped packets only TCPMinTTLDrop goes up.
    """

    TRIAL_S = 1.5    # the first repetition comes after 1 s (RFC 6298)
    IP_MINTTL = 21   # linux/in.h

    def __init__(self, after_s: float) -> None:
        self.after_ms = int(after_s * 1000)
        self.lit: dict[int, socket.socket] = {}
        self.door = socket.socket()
        self.door.bind(("127.0.0.1", 0))
        self.door.setsockopt(socket.IPPROTO_IP, self.IP_MINTTL, 255)
        self.door.listen(1)
        # A node whose loopback device answers in the door's place (a firewall) must not end anybody.
        self.trial: socket.socket | None = self._knock()
        self.tried_at = time.monotonic()
        self.is_silent = False

    def renew(self, pids: list[int]) -> None:
        """Count from now for these ranks, and no more for all others."""
        if self.trial is not None and time.monotonic() - self.tried_at > self.TRIAL_S:
            _, answered, _ = select.select([], [self.trial], [], 0)
            self.is_silent = not answered
            self.trial.close()
            self.trial = None
        fresh = {}
        for pid in pids if self.is_silent else ():
            with suppress(OSError):
                fresh[pid] = self._light(pid)
        self.remove()
        self.lit = fresh

    def remove(self) -> None:
        """Count for nobody any more."""
        for fuse in self.lit.values():
            fuse.close()
        self.lit = {}

    def _light(self, pid: int) -> socket.socket:
        fuse = self._knock()
        fcntl.fcntl(fuse, fcntl.F_SETOWN, pid)
        fcntl.fcntl(fuse, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fuse, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        return fuse

    def _knock(self) -> socket.socket:
        """A connection that waits for an answer; OSError where it does not."""
        fuse = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        fuse.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self.after_ms)
        fuse.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 127)   # the time alone decides
        fuse.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 64)   # below the door's, whatever the node's default is
        number = fuse.connect_ex(self.door.getsockname())
        if number != errno.EINPROGRESS:
            raise OSError(number, os.strerror(number))
        return fuse


class RecordProbe:
    """A disposable child that reads the attempt's record: on a frozen folder only it hangs, never the guard."""

    def __init__(self, path: str, deadline: float, in_child: Callable[[], None], afresh: bool = True) -> None:
        self.deadline = deadline
        self.reaped = False
        self.data = b""
        self.fd, child_fd = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                in_child()
                os.closerange(0, 3)   # asleep on a frozen folder, it must not hold the task's output open
                if afresh:
                    _see_afresh(os.path.dirname(path))
                with open(path, "rb") as record:
                    os.write(child_fd, record.read(4096).strip() + b"\n")
                with open(os.path.join(os.path.dirname(path), "..", "..", "pulse.json"), "rb") as pulse:
                    os.write(child_fd, pulse.read(4096).strip() + b"\n")
            except FileNotFoundError:
                os.write(child_fd, b'{"state":"missing"}\n')
            except OSError:
                os.write(child_fd, b'{"state":"unreadable"}\n')
            finally:
                os._exit(0)
        os.close(child_fd)
        os.set_blocking(self.fd, False)

    def has_ended(self, now: float) -> bool:
        """Whether all is said that will be."""
        ready, _, _ = select.select([self.fd], [], [], 0)
        data = os.read(self.fd, 16384) if ready else b""
        self.data += data
        return self.data.count(b"\n") >= 2 or bool(ready and not data) or now >= self.deadline

    def verdict(self) -> tuple[str, tuple[str, int] | None, int | None]:
        """(live | ended | missing | unreadable, endpoint or None, the pulse's counter or None)."""
        record, _, pulse = self.data.partition(b"\n")
        return (*_record(record), _count(pulse))

    def close(self) -> bool:
        """Whether the child has gone; one that hangs is left behind, until the folder thaws or the step ends."""
        os.close(self.fd)
        if not self.reaped:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                self.reaped = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        return self.reaped


def leave_word(path: str, text: str) -> None:
    """Make a file with this text, durably. What another user has put under its name goes: it may lead elsewhere."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        word = os.open(path, flags, 0o600)
    except FileExistsError:
        os.unlink(path)
        word = os.open(path, flags, 0o600)
    os.write(word, text.encode())
    os.fsync(word)
    os.close(word)


def _see_afresh(folder: str) -> None:
    """As node.fresh.see, which this file cannot import: it runs from memory."""
    name = "%s/.look.%s.%d" % (folder, os.uname().nodename, os.getpid())
    with suppress(OSError):
        try:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        finally:
            os.unlink(name)


def _record(line: bytes) -> tuple[str, tuple[str, int] | None]:
    try:
        record = json.loads(line)
        endpoint = record.get("endpoint")
        if endpoint and not 0 < int(endpoint[1]) < 1 << 16:
            endpoint = None
        return str(record["state"]), (str(endpoint[0]), int(endpoint[1])) if endpoint else None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return "unreadable", None


def _count(line: bytes) -> int | None:
    try:
        return int(json.loads(line)["count"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return None


def is_told_alone(job: str, path: str = "/proc/self/cgroup") -> bool:
    """Whether Slurm signals a task's own process only: it does where it tracks processes by cgroups.

    proctrack/cgroup signals the children of slurmstepd, and others with KILL only (22.05, measured; from 23.02 on all
    of them under SignalChildrenProcesses=yes in cgroup.conf(5): a rank is told twice then). A step's group is one of
    v1's freezer or of v2, whose line names no controller (cgroups(7)).
    """
    with suppress(OSError, ValueError), open(path) as lines:
        for line in lines if job else ():
            _, controllers, group = line.split(":", 2)
            if controllers in ("freezer", "") and "/job_%s/step_" % job in group:
                return True
    return False


def adopt_orphans() -> None:
    """Make what its descendants leave behind this process's own children (PR_SET_CHILD_SUBREAPER in prctl(2)).

    Before the launcher starts, which can leave something behind at once. `_ctypes` is what ctypes stands on; importing
    ctypes itself takes 3 ms of every restart.
    """
    words = (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        native: Any = __import__("_ctypes")
        number = type("number", (native._SimpleCData,), {"_type_": "i"})
        function = type("function", (native.CFuncPtr,), {"_flags_": native.FUNCFLAG_CDECL, "_restype_": number})
        function(native.dlsym(native.dlopen(None, 0), "prctl"))(*words)
    except Exception:  # noqa: BLE001 - what another Python has instead is unknown; without libffi there is nothing
        import ctypes

        ctypes.CDLL(None).prctl(*words)


def restore_signals() -> None:
    """Give back what Python ignores for itself: exec would keep it ignored."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def kernel_words(since_s: float) -> list[list[Any]]:
    """[[epoch s, text]]: what this node's kernel said of hardware, memory and disks since then (monotonic seconds).

    A user may read that only where kernel.dmesg_restrict is 0: dmesg(1), kernel's Documentation/ABI/testing/dev-kmsg.
    """
    found = []
    with suppress(OSError, ValueError, IndexError):
        log = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            job = b"/job_%s/" % os.environ.get("SLURM_JOB_ID", "-").encode()   # proctrack/cgroup's folders
            boot, end_s = time.time() - time.monotonic(), time.monotonic() + KERNEL_READ_S
            while time.monotonic() < end_s:
                try:
                    records = os.read(log, 8192)   # one a read, below which " KEY=value" lines may stand
                except BlockingIOError:   # that was the last
                    break
                except BrokenPipeError:   # it was overwritten meanwhile
                    continue
                if not records:
                    break
                for record in records.split(b"\n"):
                    head, _, text = record.partition(b";")
                    if not any(word in text for word in KERNEL_WORDS) or b"loop" in text or (
                            b"oom-kill:" in text and job not in text):
                        continue
                    said_s = int(head.split(b",")[2]) / 1e6
                    if said_s >= since_s:
                        found.append([round(boot + said_s, 3), text[:300].decode("utf-8", "replace")])
        finally:
            os.close(log)
    return found[-KERNEL_LINES:]


def exit_of(status: int) -> tuple[int, int | None]:
    """(exit code as a shell gives it, signal or None) of a wait status."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status), os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def processes() -> dict[int, tuple[str, int]]:
    """pid → (state's letter, parent's pid) of every process of this node."""
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
    """Descendants forked by main threads: a handful of small reads; a look at the whole node takes milliseconds."""
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


def signal_handlers(pids: Iterable[int], number: int) -> dict[int, str]:
    """pid → name of the processes that handle `number` and were sent it.

    Never bash or torchrun: the word is for the training, and a launcher that acts on it would end its ranks.
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
        if caught and fields.get("Name") not in ("bash", "sh") and not is_launcher(words):
            send([pid], number)
            reached[pid] = "%s[%d]" % (fields.get("Name"), pid)
    return reached


def is_launcher(words: list[bytes]) -> bool:
    """Whether a command line is torchrun's own."""
    names = (b"torchrun", b"torch.distributed.run", b"torch.distributed.launch")
    return any(word.endswith(b"/torchrun") or word in names for word in words[:4])


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
    return {"node": node or os.uname().nodename.split(".")[0], "found": len(found), "left": left}


def marked(mark: str, node: str) -> list[int]:
    """Pids of living processes with this mark in their environment (only one's own are readable) and of this node.

    The node's name counts because several nodes can share one process table: a sandbox, or slurmds by `-N`.
    """
    mine, pids = os.getpid(), []
    for pid, (state, _) in processes().items():
        if pid == mine or state in ("Z", "X"):
            continue
        with suppress(OSError), open("/proc/%d/environ" % pid, "rb") as environ:
            words = environ.read().split(b"\0")
            where = [word for word in words if word.startswith(b"SLURMD_NODENAME=")]
            is_here = not node or not where or where[0] == b"SLURMD_NODENAME=" + node.encode()
            if is_here and b"SAFELAUNCH_MARK=" + mark.encode() in words:
                pids.append(pid)
    return pids


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
elif __name__ != "guard":   # as job.sbatch calls it
    import_rest()
