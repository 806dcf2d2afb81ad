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

import json
import os
import select
import sys
import time

from safelaunch.node.guard.kernel import kernel_words
from safelaunch.node.guard.link import Link
from safelaunch.node.guard.processes import (
    adopt_orphans,
    descendants,
    exit_of,
    is_told_alone,
    near_descendants,
    restore_signals,
    send,
    signal_handlers,
    sweep,
)
from safelaunch.node.guard.protocol import MOST_NAMES
from safelaunch.node.guard.record import RecordProbe
from safelaunch.node.guard.switch import KNOWN_S, Switch, is_nodes_own
from safelaunch.node.light import signal, suppress

# The start of every rank waits for what is imported before. These take 12 ms, and adapters.guardcode leaves them out.
LATER = ("hmac", "json")
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TICK_S = 0.25
SWITCH_MARGIN_S = 2.0  # above the lease, and below the leader's own wait for it (adapters.fence: 5 s)
LAST_WORDS_S = 1.0     # for a leader that is being born again, too
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
KERNEL_BEFORE_S = 60.0  # of its words: a GPU may have failed while nothing ran on it
LEFTOVER_GRACE_S = 2.0  # for what the launcher left behind, between TERM and KILL
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
