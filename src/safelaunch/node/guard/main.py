"""The node guard: parent of the launcher on each node, and the fence of its ranks.

It travels as text in srun's environment (`python3 -I -S -c "$SAFELAUNCH_GUARD" COMMAND…`). So its start needs neither a
shared folder nor a file on the node, and it then lives in memory only. Standard library, Python 3.9.

Never worse than plain srun: what fails here before the launcher runs ends in `exec` of the launcher. What fails
later ends in a plain wait for it. The exit code is always the launcher's own, and so is a signal that ended it.

What it does beside waiting:
- connection: it tells the leader when the launcher and all its descendants have gone (HMAC-SHA256 both ways over a
  shared token). It is their subreaper, so that a daemonised rank is still its child;
- signals: on the leader's order it signals only processes whose SigCgt mask holds the signal; others would die of it;
- orphan's end: when leader and standby are gone and no watch runs, the job would keep its nodes until its time limit.
  After ORPHAN_S of silence, with a heartbeat that stands still, it cancels the job; the run goes on in its next one;
- last messages: when the launcher has gone and the leader's host does not answer, the first guard of the node stays. It
  waits until it is heard or another supervisor leads, so that one is left to end an orphaned job;
- fence: it ends its own ranks when it has heard nobody for `lease_s`, and the attempt's record says "ended". Late
  messages do not count. After a lost connection, a record that cannot be read is enough. So they never write beside the
  next attempt.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time

from safelaunch.node.guard.fence import (
    CANCEL,
    HOLD,
    KILL,
    LET_GO,
    LOOK,
    MOVE,
    ORPHAN_S,
    ORPHAN_STAGGER_S,
    SAY,
    SIGNAL,
    SIGNAL_AGAIN,
    TERM,
    TICK_S,
    TaskFence,
    is_too_late,
)
from safelaunch.node.guard.kernel import kernel_words
from safelaunch.node.guard.link import Link
from safelaunch.node.guard.orphan import cancel_orphan
from safelaunch.node.guard.processes import (
    adopt_orphans,
    descendants,
    end_by,
    exit_of,
    find_program,
    is_told_alone,
    near_descendants,
    restore_signals,
    send,
    signal_handlers,
    sweep,
    why_not_started,
)
from safelaunch.node.guard.protocol import MOST_NAMES, STEP_TASKS, step_range
from safelaunch.node.guard.record import Looks, RecordProbe
from safelaunch.node.guard.switch import KNOWN_S, Switch, is_nodes_own
from safelaunch.node.host import is_coerced, short_host
from safelaunch.node.light import LATER, signal, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from safelaunch.node.guard.fence import Action

SWITCH_MARGIN_S = 2.0  # above the lease, and below the leader's own wait for it (supervisor.io.fence: 5 s)
LAST_WORDS_S = 1.0     # for a leader that is being restarted, too
START_LOOK_S = 1.0     # for the read of the record before the launcher starts
LET_START_S = 0.05     # for the launcher, before this guard takes processor time for its own imports
TOO_LATE = 75          # exit code of a guard whose attempt is over before it begins (EX_TEMPFAIL)
KERNEL_BEFORE_S = 60.0  # of its lines: a GPU may have failed while nothing ran on it
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PRIVATE = ("SAFELAUNCH_BOOT", "SAFELAUNCH_GUARD", "SAFELAUNCH_GUARD_CODE", "SAFELAUNCH_TOKEN", "SAFELAUNCH_CONTROL",
           "SAFELAUNCH_ADDRESSES")


def main(argv: list[str]) -> int:
    """Exit code of the launcher `argv`, or minus the signal that ended it; of a sweep (`--sweep MARK GRACE_S`)."""
    if argv[:1] == ["--sweep"]:
        import_rest()
        sys.stdout.write(json.dumps(sweep(argv[1], float(argv[2]))) + "\n")
        return 0
    ours = (*PRIVATE, "LC_CTYPE") if is_coerced() else PRIVATE
    env = {key: value for key, value in os.environ.items() if key not in ours}
    try:
        guard = TaskGuard(os.environ)
        if not is_nodes_own():   # its modules may lie in a folder that freezes
            guard.make_ready()
        if guard.check_too_late():
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
    if guard.is_script:   # the shell that waits for it would tell of the signal in the script's output
        return guard.exit_code
    return -guard.ended_by if guard.ended_by else guard.exit_code


def task_of(env: Mapping[str, str]) -> int:
    """The number of this task; each step of a user's script has a range of its own, which a hello can hold."""
    number = int(env.get("SLURM_PROCID", "0"))
    if env.get("SAFELAUNCH_STEP"):
        return step_range(int(env["SLURM_STEP_ID"])) * STEP_TASKS + number
    return number


def tasks_of(env: Mapping[str, str]) -> int | None:
    """How many tasks the step of a user's script has; None outside such a step, and where Slurm does not say it."""
    told = env.get("SLURM_STEP_NUM_TASKS", "") if env.get("SAFELAUNCH_STEP") else ""
    return int(told) if told.isdigit() else None


def import_rest() -> None:
    """Import what a guard needs once its launcher runs."""
    globals().update((name, __import__(name)) for name in LATER)


class TaskGuard:
    """One task's guard; `run` returns when the launcher and all of its descendants have gone."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.node = env.get("SAFELAUNCH_NODE") or short_host()
        self.attempt = int(env["SAFELAUNCH_ATTEMPT"])
        lease_s = float(env["SAFELAUNCH_LEASE_S"])
        self.record = env["SAFELAUNCH_RECORD"]
        known = ",".join((env.get("SLURM_LAUNCH_NODE_IPADDR", ""), env.get("SAFELAUNCH_ADDRESSES", "")))
        self.link = Link(env["SAFELAUNCH_CONTROL"], known, env["SAFELAUNCH_TOKEN"],
                         {"node": self.node, "task": task_of(env), "attempt": self.attempt, "tasks": tasks_of(env)})
        self.launcher = 0
        self.exit_code = 1
        self.ended_by: int | None = None   # by which the launcher has ended
        self.ended = False          # the launcher has been reaped
        self.is_childless = False   # and it left no other process
        self.started_s = time.monotonic()
        is_first = env.get("SLURM_LOCALID", "0") == "0" and "SAFELAUNCH_LOCAL" not in env
        is_to_end = is_first and "SAFELAUNCH_KEEPS_JOB" not in env
        self.job = env.get("SLURM_JOB_ID", "") if is_to_end else ""   # to be cancelled where it is an orphan
        self.fence = TaskFence(self.started_s, lease_s, is_first, bool(self.job),
                               ORPHAN_S + ORPHAN_STAGGER_S * int(env.get("SLURM_NODEID", "0")))
        self.is_of_step = "SAFELAUNCH_STEP" in env   # of a user's own script
        self.task = 0   # the launcher, where it is the task of a script's own srun
        self.is_script = env.get("SAFELAUNCH_LAUNCHER") == "script" and not self.is_of_step
        self.is_for_shell = env.get("SAFELAUNCH_SIGNAL_TO") == "shell"   # which alone is signalled (--signal=B:)
        self.signalled: dict[int, dict[int, str]] = {}   # by signal and pid: who was sent it for the leader
        self.stopped: tuple[int, ...] = ()      # ranks that this guard has stopped
        self.known: list[int] = []              # the ranks as they were a moment ago
        self.known_at = 0.0
        self.canceller = 0                      # the child that cancels the orphaned job
        self.wake_r, wake_w = os.pipe()
        for fd in (self.wake_r, wake_w):
            os.set_blocking(fd, False)
        adopt_orphans()
        self.switch = Switch(lease_s + SWITCH_MARGIN_S)
        self.looks = Looks(self.record, self.switch.forget_in_child)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        self.is_told_alone = is_told_alone(env.get("SLURM_JOB_ID", ""))
        self.told: list[int] = []               # signals from Slurm that the ranks have not got yet
        for name in ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT"):
            # Slurm signals every process of a step, or this one alone; the guard stays to see them go.
            signal.signal(getattr(signal, name), self._take_signal)

    def _take_signal(self, number: int, frame: Any) -> None:
        if number in ENDINGS:
            self.fence.is_over = True
        if self.is_told_alone and number not in (signal.SIGCHLD, signal.SIGCONT):
            self.told.append(number)

    def _hand_on(self) -> None:
        """Pass on what Slurm signalled this process alone: to ranks that handle it, or to all if it ends the others."""
        while self.told:
            number = self.told.pop(0)
            if not signal_handlers(self._ranks(), number, task=self.task) and number in ENDINGS:
                send(self._ranks(), number)

    def start(self, argv: list[str], env: dict[str, str]) -> None:
        """Start the launcher in this process group: leaving it would leave proctrack/pgid's container."""
        self.launcher = os.fork()
        if self.launcher == 0:
            code = 127
            try:
                restore_signals()
                signal.set_wakeup_fd(-1)
                if self.is_of_step:
                    argv = [find_program(argv[0], env), *argv[1:]]
                    os.execve(argv[0], argv, env)  # noqa: S606
                os.execvpe(argv[0], argv, env)  # noqa: S606
            except OSError as error:
                said = "safelaunch: cannot start %s: %s\n" % (argv[0], error)
                if self.is_of_step:
                    said, code = why_not_started(argv[0], error), error.errno or code
                os.write(2, os.fsencode(said))
            finally:
                os._exit(code)
        self.task = self.launcher if self.is_of_step else 0

    def check_too_late(self) -> bool:
        """Whether the attempt's record said "ended" before this guard began: a node slept between launch and start.

        Another attempt may run by now. With no answer within START_LOOK_S, or any other, the training starts.
        """
        end = time.monotonic() + START_LOOK_S
        probe = RecordProbe(self.record, end, self.switch.forget_in_child)
        while not probe.read_more(time.monotonic()):
            select.select([probe.fd], [], [], max(0.0, end - time.monotonic()))
        if not probe.close():
            self.looks.hung.add(probe.pid)
        if b"ended" not in probe.data:
            return False
        import_rest()
        if not is_too_late(probe.seen()):
            return False
        self._tell_user("attempt %d is over already: nothing is started" % self.attempt)
        return True

    def _tell_user(self, text: str) -> None:
        sys.stderr.write("safelaunch: guard of %s: %s\n" % (self.node, text))

    def let_start(self) -> None:
        """Wait for a moment, unless the launcher ends or Slurm signals it. A read that has ended is neither."""
        end = time.monotonic() + LET_START_S
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while not self.told and not self.fence.is_over and os.waitid(os.P_PID, self.launcher, how) is None:
            if not select.select([self.wake_r], [], [], max(0.0, end - time.monotonic()))[0]:
                return
            os.read(self.wake_r, 4096)

    def make_ready(self) -> None:
        """Import the rest and arm the switch: 10 to 20 ms of processor time that the launcher shall not wait for."""
        import_rest()
        self.switch.make()
        self.switch.rearm()

    def run(self) -> None:
        """Watch until nothing is left, then report it."""
        self.link.messages(time.monotonic())   # connect now, not after the first sleep
        while not self.fence.is_gone:
            self._turn()
        self.link.say({"ev": "gone", "code": self.exit_code})
        self.link.drain(LAST_WORDS_S)
        while self.fence.stays(time.monotonic(), self.link.answered):
            self._turn()
        self.link.drain(LAST_WORDS_S)
        self.looks.close()
        self.link.end()

    def _turn(self) -> None:
        self._sleep()
        now = time.monotonic()
        self.switch.rearm()
        # Before anything is read: ranks that woke up with this node must not write much.
        self._carry_out(now, self.fence.step(now, record=self.looks.poll(now)))
        self._reap()   # first: ranks that have gone need no search
        left = bool(self._ranks()) if self.ended else None
        self._carry_out(now, self.fence.step(now, self.link.messages(now), left=left))
        self._hand_on()
        if now - self.known_at > KNOWN_S:
            self.known, self.known_at = near_descendants(os.getpid()), now
            self.switch.watch(self.known)

    def _sleep(self) -> None:
        fds_r: list[Any] = [self.wake_r]
        fds_w: list[Any] = []
        sock = self.link.sock
        if sock is not None:
            (fds_r if self.link.connected else fds_w).append(sock)
            if self.link.outbox:
                fds_w.append(sock)
        if self.looks.probe is not None:
            fds_r.append(self.looks.probe.fd)
        select.select(fds_r, fds_w, [], TICK_S if self.fence.is_gone or not self.ended else 0.02)
        with suppress(BlockingIOError):
            os.read(self.wake_r, 4096)

    def _carry_out(self, now: float, todo: list[Action]) -> None:
        for verb, what in todo:
            if verb == SAY:
                self.link.say(what)
            elif verb == HOLD:
                send(self.known, signal.SIGSTOP)   # the list is ready: every instant counts
                self.stopped = tuple(self.known)
            elif verb == LET_GO:
                send(self.stopped, signal.SIGCONT)
            elif verb == LOOK:
                self.looks.begin(now, what)
            elif verb == MOVE:
                self.link.move(what)
            elif verb in (SIGNAL, SIGNAL_AGAIN):
                if verb == SIGNAL_AGAIN:
                    self.signalled.pop(what, None)
                self.link.say({"ev": "signalled", "reached": self._signal_once(what)[:MOST_NAMES]})
            elif verb == TERM:
                send(self._ranks(), signal.SIGTERM)
            elif verb == KILL:
                if what:
                    self._tell_user(what)
                send(self._ranks(), signal.SIGKILL)
            elif verb == CANCEL and not self.canceller:
                self._tell_user("%s: cancelling job %s, so that the run goes on in its next one" % (what, self.job))
                self.canceller = cancel_orphan(self.job, self.node, self.record, self.switch.forget_in_child)

    def _signal_once(self, number: int) -> list[str]:
        """Names of the processes that were sent it, now or before: a leader that missed answers asks again."""
        known = self.signalled.setdefault(number, {})
        asked = self._ranks() if not self.is_for_shell else [] if self.is_of_step or self.ended else [self.launcher]
        unasked = [pid for pid in asked if pid not in known]
        known.update(signal_handlers(unasked, number, self.is_for_shell, self.task))
        return list(known.values())

    def _reap(self) -> None:
        self.is_childless = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.is_childless = True   # and no descendant: their orphans are children of this subreaper
                return
            if pid == 0:
                return
            self.looks.reaped(pid)
            self.canceller = 0 if pid == self.canceller else self.canceller
            if pid == self.launcher:
                self.ended = True
                self.exit_code, self.ended_by = exit_of(status)
                kernel = kernel_words(self.started_s - KERNEL_BEFORE_S) if self.exit_code else []
                self.link.say({"ev": "exited", "code": self.exit_code, "signal": self.ended_by, "kernel": kernel})

    def _ranks(self) -> list[int]:
        """The living descendants, without this guard's own children."""
        if self.is_childless:
            return []
        own = self.looks.pids() | {self.canceller}
        return [pid for pid in descendants(os.getpid()) if pid not in own]

    def wait_plainly(self) -> None:
        """Wait for the launcher as a shell would, and pass no signal on: after a bug in the guard."""
        self.switch.disarm()
        send(self.stopped, signal.SIGCONT)
        while not self.ended:
            try:
                pid, status = os.waitpid(self.launcher, 0)
            except ChildProcessError:
                return
            if pid == self.launcher:
                self.ended = True
                self.exit_code, self.ended_by = exit_of(status)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code < 0:
        end_by(-code)
    sys.exit(code if code >= 0 else 128 - code)
