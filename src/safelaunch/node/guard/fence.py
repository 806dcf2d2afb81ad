"""Whether a task's ranks live or die: a pure machine, fed with what its guard hears and reads.

There is no clock, file, socket or process here. `Fence.step` takes the time and all that has come since the last step.
It returns what is to be done: node/guard/main does it on a node, tests/simulation on a simulated one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Action = tuple[str, Any]
    # (live | ended | missing | unreadable, where a supervisor listens, the heartbeat's counter); None = unknown.
    RecordState = tuple[str, "tuple[str, int] | None", "int | None"]

TICK_S = 0.25          # the longest time between two steps
LOOK_S = 3.0           # of silence before the record is read: a standby may have taken over, at another endpoint
ASK_SHARE = 0.6        # of LOOK_S: age of the last answered question at which the next one is asked
RECORD_CHECK_S = 1.0   # between two such reads
ORPHAN_S = 150.0       # far above a takeover (20 s), a leader's restart, and an outage of a minute
ORPHAN_READS = 20      # reads of a heartbeat that stands still
ORPHAN_STAGGER_S = 20.0   # the node with the lowest number first
ORPHAN_AGAIN_S = 600.0    # if a cancel does not help
STAY_S = 900.0         # for last messages that nobody receives: beyond the second try at an orphan's end
LEFTOVER_GRACE_S = 2.0  # for what the launcher left behind, between TERM and KILL
KILL_AGAIN_S = 1.0     # a dying rank may have forked since
NO_SQUEUE = 127        # shells exit with this where there is no such command

SAY = "say"            # this message, to the leader
MOVE = "move"          # to this address: a supervisor was started again there
LOOK = "look"          # at the record; True = not from this node's NFS cache
HOLD = "hold"          # stop the ranks
LET_GO = "let go"      # let them run again
SIGNAL = "signal"      # those that handle this signal, each once
SIGNAL_AGAIN = "save"  # those that handle it, whoever has had it before
TERM = "term"          # the ranks
KILL = "kill"          # the ranks; why, in words, where it is this guard's own decision
CANCEL = "cancel"      # the job, which nobody leads; why, in words


class TaskFence:
    """One task's fence; times are seconds of one monotonic clock.

    `is_first`: the first task of its node, which asks the folder for all; `has_job`: it may cancel a job of Slurm's.
    """

    def __init__(self, now: float, lease_s: float, is_first: bool, has_job: bool, orphan_s: float = ORPHAN_S) -> None:
        self.lease_s, self.look_s = lease_s, min(LOOK_S, lease_s / 2)
        self.is_first, self.has_job, self.orphan_s = is_first, has_job, orphan_s
        self.heard = self.proved = self.ticked = now   # proved: an answered question was asked then
        self.asked = -1.0               # when the last question was
        self.has_met = False            # has heard a leader at least once
        self.kill_at: float | None = None   # when TERM becomes KILL
        self.looked = -1e9
        self.is_looking = False
        self.looks_alone = False        # the read under way began after the lease had run out
        self.is_look_old = False        # ... or before this node slept
        self.is_holding = False         # the ranks are stopped while it looks
        self.heartbeat: int | None = None   # its counter at the last read,
        self.heartbeat_at = now             # since when it has that value,
        self.heartbeat_reads = 0            # in how many reads
        self.is_over = False            # Slurm ends the step, or another supervisor looks after this attempt
        self.is_gone = False            # nothing is left of the launcher and its descendants
        self.stays_until: float | None = None

    def step(self, now: float, heard: Iterable[dict[str, Any]] = (), record: RecordState | None = None,
             left: bool | None = None) -> list[Action]:
        """What is to be done now, in this order.

        `heard` came from the leader; `record` is the result of a read; `left`: the launcher has ended, and has left
        something or not (None: it runs).
        """
        todo: list[Action] = []
        self._hold_if_woken(now, todo)
        if record is not None:
            self._judge(now, record, todo)
        self._read_if_silent(now, todo)
        for message in heard:
            self._receive(now, message, todo)
            self._obey(now, message, todo)
        if not self.is_gone:
            self._finish(now, left, todo)
        return todo

    def stays(self, now: float, answered: float) -> bool:
        """Whether a guard whose ranks have gone waits until a supervisor hears it; `answered`: when the leader's host
        last answered.

        A host that refuses or hangs up lives, and its shell sees srun's end; a host without power sends nothing. If
        nobody were left, the job would keep its nodes until its limit (simulated: test_found "job whose supervisors are
        dead is ended although its ranks ended before").
        """
        if now - answered <= self.look_s or not (self.has_job and self.has_met) or self.is_over:
            return False
        if self.stays_until is None:
            self.stays_until = now + STAY_S
        return now < self.stays_until

    def _hold_if_woken(self, now: float, todo: list[Action]) -> None:
        """Hold the ranks first when this whole node has slept: a later attempt may run by now."""
        slept_s, self.ticked = now - self.ticked, now
        if slept_s > self.lease_s / 2:
            self.looked, self.is_look_old = -1e9, self.is_looking
            if not self.is_holding:
                self.is_holding = True
                todo.append((HOLD, None))

    def _let_go(self, todo: list[Action]) -> None:
        if self.is_holding:
            self.is_holding = False
            todo.append((LET_GO, None))

    def _read_if_silent(self, now: float, todo: list[Action]) -> None:
        if self.is_looking:
            return
        if now - self.heard <= self.look_s:
            self._let_go(todo)
        elif now - self.looked >= RECORD_CHECK_S:
            self.looks_alone = now - self.heard > self.lease_s   # what arrives now may be old: the node slept
            self.looked, self.is_looking = now, True
            # One guard of a node reads past the cache for all: they share an NFS client. A guard that slept reads for
            # itself.
            todo.append((LOOK, self.is_first or self.is_holding))

    def _judge(self, now: float, record: RecordState, todo: list[Action]) -> None:
        self.is_looking, was_old, self.is_look_old = False, self.is_look_old, False
        if was_old:
            return
        state, endpoint, heartbeat = record
        self._watch_heartbeat(now, state, heartbeat, todo)
        if endpoint and now - self.heard > self.look_s:
            todo.append((MOVE, endpoint))
        is_unknown = state == "unreadable" and not self.has_met
        is_alone = self.looks_alone and now - self.heard > self.lease_s   # an answer may have come during the read
        if not is_alone or state in ("live", "missing") or is_unknown:
            if state != "ended":
                self._let_go(todo)
        elif self.is_gone:
            self.is_over = True
        else:
            self.is_holding = False
            self.kill_at = now
            todo.append((KILL, "heard nobody for %.1f s and the attempt's record is %s: ending its ranks" % (
                now - self.heard, state)))

    def _watch_heartbeat(self, now: float, state: str, heartbeat: int | None, todo: list[Action]) -> None:
        """End a job that nobody leads: the attempt is not over, nobody is heard, and the heartbeat does not move."""
        if heartbeat is None or state != "live":
            return   # a folder that does not answer is no evidence
        if self.is_gone and self.heartbeat_at > self.heard and heartbeat != self.heartbeat:
            self.is_over = True   # a supervisor leads that this guard cannot reach: srun tells it the end
        if heartbeat != self.heartbeat or now - self.heard < self.look_s + 1.0:
            self.heartbeat, self.heartbeat_at, self.heartbeat_reads = heartbeat, now, 0
        self.heartbeat_reads += 1
        silent_s = min(now - self.heard, now - self.heartbeat_at)
        is_orphan = silent_s > self.orphan_s and self.heartbeat_reads >= ORPHAN_READS
        if is_orphan and self.has_job:
            self.orphan_s += ORPHAN_AGAIN_S
            todo.append((CANCEL, "no supervisor has been heard or seen for %.0f s" % (now - self.heard)))

    def _receive(self, now: float, message: dict[str, Any], todo: list[Action]) -> None:
        """Take a message for a sign of life.

        After a silence a message may be old: delayed by a cut cable, or by this node's own sleep. Then only the answer
        to a question counts, as of when that was asked. Questions are asked all the time: who has the leader's port
        could delay its pings, and pass them on after the leader's death.
        """
        self.has_met = True
        asked = message.get("t")
        if isinstance(asked, float):
            self.proved = max(self.proved, min(asked, now))
            self.heard = max(self.heard, self.proved)
            return
        if now - min(self.heard, self.proved) <= self.look_s + TICK_S:
            self.heard = now
        if now - self.proved > self.look_s * ASK_SHARE:
            self.asked = now
            todo.append((SAY, {"ev": "pong", "t": now}))

    def _obey(self, now: float, message: dict[str, Any], todo: list[Action]) -> None:
        verb = message.get("do")
        if verb == "ping":
            if self.asked != now and "t" not in message:   # a question is an answer as well
                todo.append((SAY, {"ev": "pong"}))
        elif verb == "signal":
            todo.append((SIGNAL, message["signal"]))
        elif verb == "save":
            todo.append((SIGNAL_AGAIN, message["signal"]))
        elif verb == "end":
            self._end(now, float(message["grace_s"]), todo)

    def _end(self, now: float, grace_s: float, todo: list[Action]) -> None:
        if self.kill_at is None:
            todo.append((TERM, None))
        self.kill_at = min(now + grace_s, self.kill_at if self.kill_at is not None else now + grace_s)

    def _finish(self, now: float, left: bool | None, todo: list[Action]) -> None:
        if left is False:
            self.is_gone = True
            return
        if self.kill_at is not None and now >= self.kill_at:
            todo.append((KILL, ""))
            self.kill_at = now + KILL_AGAIN_S
        if left and self.kill_at is None:
            self._end(now, LEFTOVER_GRACE_S, todo)


def is_too_late(record: RecordState) -> bool:
    """Whether an attempt is over before its guard has begun: its node slept between launch and start."""
    return record[0] == "ended"


def is_to_be_cancelled(code: int | None, said: bytes) -> bool:
    """Whether Slurm goes on running a job that nobody leads, by squeue's exit code (None: no answer) and state.

    A person's cancel must not be taken for this guard's (simulated: test_found "a cancel that cannot reach silent nodes
    is not taken for a guard's").
    """
    return code == NO_SQUEUE or (code == 0 and said.split() == [b"RUNNING"])
