"""Whether a task's ranks live or die: a pure machine, fed with what its guard hears and reads.

No clock, file, socket or process in here. `Fence.step` takes the time and what has come since the last step, and gives
back what is to be done: node/guard/main does it on a node, tests/simulation on a simulated one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Action = tuple[str, Any]
    # (live | ended | missing | unreadable, where a supervisor listens, the pulse's counter); None = unknown.
    RecordState = tuple[str, "tuple[str, int] | None", "int | None"]

TICK_S = 0.25          # the longest time between two steps
LOOK_S = 3.0           # of silence before the record is looked at: a standby may have taken over, and has another door
ASK_SHARE = 0.6        # of LOOK_S: so old may the last answered question be before another is asked
RECORD_CHECK_S = 1.0   # between two such looks
ORPHAN_S = 150.0       # far above a takeover (20 s), a leader's rebirth, and a minute's outage of everything
ORPHAN_READS = 20      # looks at a pulse that stands still
ORPHAN_STAGGER_S = 20.0   # the node with the lowest number first
ORPHAN_AGAIN_S = 600.0    # should a cancel not help
STAY_S = 900.0         # for last words that nobody hears: beyond the second try at an orphan's end
LEFTOVER_GRACE_S = 2.0  # for what the launcher left behind, between TERM and KILL
KILL_AGAIN_S = 1.0     # a dying rank may have forked meanwhile
NO_SQUEUE = 127        # exit code of a command that is not there, as shells give it

SAY = "say"            # this message, to the leader
MOVE = "move"          # to this address: a supervisor was born again elsewhere
LOOK = "look"          # at the record; True = past what this node remembers of the folder
HOLD = "hold"          # stop the ranks
LET_GO = "let go"      # let them run again
SIGNAL = "signal"      # those that handle this signal, each once
TERM = "term"          # the ranks
KILL = "kill"          # the ranks; why, in words, where it is this guard's own decision
CANCEL = "cancel"      # the job, which nobody leads; why, in words


class TaskFence:
    """One task's fence; times are seconds of one monotonic clock.

    `is_first`: of its node's tasks, so that it asks the folder for all; `has_job`: it may cancel a job of Slurm's.
    """

    def __init__(self, now: float, lease_s: float, is_first: bool, has_job: bool, orphan_s: float = ORPHAN_S) -> None:
        self.lease_s, self.look_s = lease_s, min(LOOK_S, lease_s / 2)
        self.is_first, self.has_job, self.orphan_s = is_first, has_job, orphan_s
        self.heard = self.proved = self.ticked = now   # proved: an answered question was asked then
        self.asked = -1.0               # when the last question was
        self.has_met = False            # a leader, ever
        self.kill_at: float | None = None   # when TERM becomes KILL
        self.looked = -1e9
        self.is_looking = False
        self.looks_alone = False        # whether the look under way was begun after the lease had run out
        self.is_look_old = False        # or before this node slept
        self.is_holding = False         # the ranks are stopped while it looks
        self.pulse: int | None = None   # its counter when it was last looked at,
        self.pulse_at = now             # since when it has been that,
        self.pulse_reads = 0            # and how often it was
        self.is_over = False            # Slurm ends the step, or others see to this attempt
        self.is_gone = False            # nothing is left of the launcher and its descendants
        self.stays_until: float | None = None

    def step(self, now: float, heard: Iterable[dict[str, Any]] = (), seen: RecordState | None = None,
             left: bool | None = None) -> list[Action]:
        """What is to be done now, in this order.

        `heard` has come from the leader; `seen` is what the look found that was asked for; `left`: the launcher has
        ended, and has left something behind or not (None: it runs).
        """
        todo: list[Action] = []
        self._hold_if_woken(now, todo)
        if seen is not None:
            self._judge(now, seen, todo)
        self._look_if_silent(now, todo)
        for message in heard:
            self._hear(now, message, todo)
            self._obey(now, message, todo)
        if not self.is_gone:
            self._finish(now, left, todo)
        return todo

    def stays(self, now: float, answered: float) -> bool:
        """Whether a guard whose ranks have gone waits for somebody to hear so; `answered`: the leader's host, last.

        A host that refuses or hangs up lives, and its shell sees srun's end; from one without power nothing comes.
        Were nobody left when both supervisors are dead, the job would keep its nodes until its limit (simulated).
        """
        if now - answered <= self.look_s or not (self.has_job and self.has_met) or self.is_over:
            return False
        if self.stays_until is None:
            self.stays_until = now + STAY_S
        return now < self.stays_until

    def _hold_if_woken(self, now: float, todo: list[Action]) -> None:
        """This whole node was stopped and has woken up: hold the ranks before anything else, they may have successors.
        """
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

    def _look_if_silent(self, now: float, todo: list[Action]) -> None:
        if self.is_looking:
            return
        if now - self.heard <= self.look_s:
            self._let_go(todo)
        elif now - self.looked >= RECORD_CHECK_S:
            self.looks_alone = now - self.heard > self.lease_s   # what comes in meanwhile may be old: it slept
            self.looked, self.is_looking = now, True
            # One guard of a node looks afresh for all: they have one NFS client. Who may have slept does so itself.
            todo.append((LOOK, self.is_first or self.is_holding))

    def _judge(self, now: float, seen: RecordState, todo: list[Action]) -> None:
        self.is_looking, was_old, self.is_look_old = False, self.is_look_old, False
        if was_old:
            return
        state, endpoint, pulse = seen
        self._watch_pulse(now, state, pulse, todo)
        if endpoint and now - self.heard > self.look_s:
            todo.append((MOVE, endpoint))
        is_unknown = state == "unreadable" and not self.has_met
        if not self.looks_alone or state in ("live", "missing") or is_unknown:
            if state != "ended":
                self._let_go(todo)
        elif self.is_gone:
            self.is_over = True
        else:
            self.is_holding = False
            self.kill_at = now
            todo.append((KILL, "heard nobody for %.1f s and the attempt's record is %s: ending its ranks" % (
                now - self.heard, state)))

    def _watch_pulse(self, now: float, state: str, pulse: int | None, todo: list[Action]) -> None:
        """End a job that nobody leads: the attempt is not over, nobody speaks, and the pulse does not move."""
        if pulse is None or state != "live":
            return   # a folder that does not answer tells nothing
        if self.is_gone and self.pulse_at > self.heard and pulse != self.pulse:
            self.is_over = True   # somebody leads who does not hear this guard: srun tells him
        if pulse != self.pulse or now - self.heard < self.look_s + 1.0:
            self.pulse, self.pulse_at, self.pulse_reads = pulse, now, 0
        self.pulse_reads += 1
        is_orphan = min(now - self.heard, now - self.pulse_at) > self.orphan_s and self.pulse_reads >= ORPHAN_READS
        if is_orphan and self.has_job:
            self.orphan_s += ORPHAN_AGAIN_S
            todo.append((CANCEL, "no supervisor has been heard or seen for %.0f s" % (now - self.heard)))

    def _hear(self, now: float, message: dict[str, Any], todo: list[Action]) -> None:
        """Take a word for a sign of life. After a silence it may be an old one: it waited for a cable to be mended, or
        for this node to wake up, and who said it is gone by now. Then only the answer to a question counts, and as of
        when that was asked. Questions are asked all the time: who has the leader's port could else make its pings late,
        more and more, and have the rest of them taken for life after its death.
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


def is_too_late(seen: RecordState) -> bool:
    """Whether an attempt is over before its guard has begun: its node slept between launch and start."""
    return seen[0] == "ended"


def is_to_be_cancelled(code: int | None, said: bytes) -> bool:
    """Whether Slurm goes on running a job that nobody leads, by squeue's exit code (None: no answer) and state.

    A person's cancel that cannot reach silent nodes must not be taken for this guard's, and without an answer a cancel
    of its own would not be heard either (simulated).
    """
    return code == NO_SQUEUE or (code == 0 and said.split() == [b"RUNNING"])
