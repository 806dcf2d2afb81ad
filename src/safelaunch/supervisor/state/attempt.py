"""The attempt that this leader looks after, with its process here and what its log has shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from safelaunch.base.model import Exit
from safelaunch.decide.facts.seen import Live, mark_asked, mark_killed, move_times
from safelaunch.hangs.stepstart import Waiter
from safelaunch.nodehealth.slow.oddfigures import FigureWatch
from safelaunch.nodehealth.slow.pace import LogPace
from safelaunch.supervisor.io.attempt import AttemptProcess
from safelaunch.supervisor.state.clock import Clock
from safelaunch.trainlog.counters import Counter
from safelaunch.trainlog.lines import Unread
from safelaunch.why.findings import OutsideEvidence


class ReadLog(NamedTuple):
    """What the log of an attempt said (as `why --json`; None = nobody could tell) when it was so long."""

    attempt: int
    size: int
    evidence: OutsideEvidence
    found: dict[str, Any] | None


class StepStart(NamedTuple):
    """An srun that waits, in its own words, since then (monotonic seconds)."""

    place: Waiter
    why: str
    since_s: float


class Counted(NamedTuple):
    """The counters in the log of an attempt; `is_settled`: it is known whether that has gone on from its checkpoint."""

    attempt: int = 0
    counters: tuple[Counter, ...] = ()
    is_settled: bool = False


class HeardLog(NamedTuple):
    """So much of a log was listened to. `known`: lines of it that tell how what follows counts (trainlog.epochs).
    `unread`: its lines, as long as none has named a step.
    """

    size: int = 0
    known: bytes = b""
    unread: Unread | None = None


class LastStep(NamedTuple):
    """When the log named the last step (epoch s; None = it has named none), and whether a hang is suspected since."""

    t: float | None = None
    is_suspected: bool = False


class LiveExits:
    """The live attempt and the exits of its tasks. They are added to it together, when somebody asks for it: thousands
    are reported at once, and a tuple of them all for each would be as many copies of it.
    """

    def __init__(self) -> None:
        self.live: Live | None = None
        self.ended: set[tuple[str, int]] = set()   # tasks that have reported
        self.fresh: list[Exit] = []                # what `live` has not got yet

    def set_live(self, live: Live | None) -> None:
        """Another attempt, or the same one as it is known now."""
        self.live, self.fresh = live, []
        self.ended = set() if live is None else {(known.node, known.task) for known in live.exits}

    def add(self, exit: Exit, now: float) -> bool:
        """Whether this is the first report of the task; only that counts."""
        assert self.live is not None
        if (exit.node, exit.task) in self.ended:
            return False
        self.ended.add((exit.node, exit.task))
        self.fresh.append(exit)
        if exit.code and self.live.failed_t is None:
            self.live = replace(self.live, failed_t=now)
        return True

    def take(self) -> Live | None:
        """The attempt with all of them."""
        if self.fresh and self.live is not None:
            self.live, self.fresh = replace(self.live, exits=(*self.live.exits, *self.fresh)), []
        return self.live


class RunningAttempt:
    """`live` as `decide` sees it, None between attempts; times are monotonic seconds."""

    def __init__(self, now_s: float) -> None:
        self._known = LiveExits()
        self.process: AttemptProcess | None = None
        self.size = 0                       # of its log
        self.heard = HeardLog()             # what of it was listened to
        self.grew_s = self.exit_s = self.killed_s = self.launched_s = now_s
        self.last_step = LastStep()
        self.was_stopped = False            # this job as a whole, for longer than a lease (scontrol suspend)
        self.moved = (0, 0)                 # attempt, and the ticket of the write that moved its record on
        self.counted = Counted()            # what the log counts (supervisor.common.lostprogress)
        self.pace: LogPace | None = None    # how fast steps are; None = not read yet, then the journal's level counts
        self.figures = FigureWatch()        # its losses and norms, and those of the attempts before
        self.step_start: StepStart | None = None   # an srun that waits for its step
        self.read: ReadLog | None = None    # the last attempt's log, perhaps without its last words

    @property
    def live(self) -> Live | None:
        return self._known.take()

    @property
    def number(self) -> int | None:
        return None if self._known.live is None else self._known.live.number

    @property
    def now(self) -> Live:
        live = self.live
        assert live is not None
        return live

    def log_bytes(self) -> int | None:
        """How long the live attempt's log is by now; None = another host has it."""
        return self.process.size() if self.process is not None else None

    def grew_t(self, clock: Clock) -> float:
        """When its log grew last, epoch s."""
        return clock.now - max(0.0, clock.now_s - self.grew_s)

    def begin(self, live: Live) -> None:
        """It is announced."""
        self._known.set_live(live)

    def mark_launched(self, process: AttemptProcess, now_s: float) -> None:
        """srun was started; `process` is it."""
        self.process, self.size, self.heard, self.step_start = process, 0, HeardLog(0, b"", Unread()), None
        self.grew_s, self.was_stopped, self.launched_s = now_s, False, now_s
        self.last_step = LastStep()

    def adopt(self, live: Live, process: AttemptProcess | None) -> None:
        """Look after an attempt that an earlier supervisor launched; None: its process is elsewhere, or gone."""
        self._known.set_live(live)
        self.process = process

    def mark_asked(self, row: str, now: float) -> None:
        """The attempt was asked to end, or Slurm ends it."""
        self._known.set_live(mark_asked(self.now, row, now))

    def mark_killed(self, row: str, now: float, now_s: float) -> None:
        """Every process of the attempt is to end."""
        self._known.set_live(mark_killed(self.now, row, now))
        self.killed_s = now_s

    def note_clock_step(self, by_s: float) -> None:
        """The wall clock has stepped."""
        if self.live is not None:
            self._known.set_live(move_times(self.now, by_s))

    def note_heard(self, processes: int | None) -> None:
        """So many processes took the signal; None = nobody knows."""
        self._known.set_live(replace(self.now, heard=processes))

    def note_saved(self, path: str, now: float) -> None:
        """A checkpoint has completed since the attempt was asked to end."""
        self._known.set_live(replace(self.now, saved=path, saved_t=now))

    def note_hang(self, what: str) -> None:
        """Two witnesses agree on a hang."""
        self._known.set_live(replace(self.now, hung=what))

    def note_step_start(self, waits: StepStart | None) -> None:
        """Its srun waits; None: it does not."""
        self.step_start = waits

    def mark_stuck(self, why: str) -> None:
        """The attempt's step never starts."""
        self._known.set_live(replace(self.now, stuck=why))

    def note_lost_progress(self, why: str) -> None:
        """The attempt has surely started below all its checkpoints."""
        self._known.set_live(replace(self.now, lost=why))

    def note_srun_end(self, code: int) -> None:
        """With this code."""
        self._known.set_live(replace(self.now, srun_code=code))

    def note_task_end(self, exit: Exit, now: float, now_s: float) -> None:
        """As its guard says; the first report counts."""
        if self._known.add(exit, now):
            self.exit_s = now_s

    def mark_fenced(self, exits: tuple[Exit, ...]) -> None:
        """Nothing of the attempt is left on any node; its tasks have ended with `exits`."""
        self._known.set_live(replace(self.now, fenced=True, exits=exits))

    def close(self) -> None:
        """The attempt has its verdict."""
        self._known.set_live(None)
        self.process = None

    def note_log_size(self, size: int, now_s: float) -> None:
        """The log is so long now."""
        if size != self.size:
            self.size, self.grew_s = size, now_s

    def note_step(self, t: float) -> None:
        """The log named a new step at `t`."""
        self.last_step = LastStep(t)

    def suspect_hang(self) -> None:
        """No step comes: the ranks are checked."""
        self.last_step = self.last_step._replace(is_suspected=True)

    def note_ended_log(self, size: int) -> None:
        """The length of an ended attempt's log, which is no sign of life."""
        self.size = size

    def listen(self) -> int:
        """The byte from which the log is new; all of the log counts as read now."""
        start, self.heard = self.heard.size, self.heard._replace(size=self.size)
        return start

    def note_standstill(self, now_s: float, is_long: bool) -> None:
        """This process stood still, so that nobody read the log; perhaps the whole job did."""
        self.grew_s = now_s
        self.was_stopped = self.was_stopped or is_long

    def note_known(self, lines: bytes) -> None:
        """New lines of the log are read behind these."""
        self.heard = self.heard._replace(known=lines)

    def note_unread(self, unread: Unread | None) -> None:
        """So far; None: it has named one, or the lines are told."""
        self.heard = self.heard._replace(unread=unread)

    def note_counted(self, counted: Counted) -> None:
        """What the attempt's log counts."""
        self.counted = counted

    def note_pace(self, pace: LogPace) -> None:
        """As far as its log was read for that."""
        self.pace = pace

    def note_figures(self, figures: FigureWatch) -> None:
        """Losses and norms, as far as the log was read for them."""
        self.figures = figures

    def note_read(self, read: ReadLog) -> None:
        """What the log said when the attempt had ended."""
        self.read = read

    def note_moved(self, number: int, ticket: int) -> None:
        """Its record is to say that it has ended."""
        self.moved = (number, ticket)
