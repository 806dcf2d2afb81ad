"""The attempt that this leader looks after, with its process here and what its log has shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from safelaunch.adapters.attempt import AttemptProcess
from safelaunch.core.counters import Counter
from safelaunch.core.decide.seen import Live, mark_asked, mark_killed
from safelaunch.core.hangs.stepstart import Waiter
from safelaunch.core.model import Exit
from safelaunch.core.progress.lines import Unread
from safelaunch.core.slow.oddfigures import FigureWatch
from safelaunch.core.slow.pace import LogPace
from safelaunch.core.why.findings import OutsideEvidence


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
    """So much of a log was listened to. `known`: lines of it that tell how what follows counts (core.progress.epochs).
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

    def becomes(self, live: Live | None) -> None:
        """Another one, or the same as it is known now."""
        self.live, self.fresh = live, []
        self.ended = set() if live is None else {(known.node, known.task) for known in live.exits}

    def adds(self, exit: Exit, now: float) -> bool:
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
    """`live` as `core.decide` sees it, None between attempts; times are monotonic seconds."""

    def __init__(self, now_s: float) -> None:
        self._known = LiveExits()
        self.process: AttemptProcess | None = None
        self.size = 0                       # of its log
        self.heard = HeardLog()             # what of it was listened to
        self.grew_s = self.exit_s = self.killed_s = self.launched_s = now_s
        self.last_step = LastStep()
        self.was_stopped = False            # this job as a whole, for longer than a lease (scontrol suspend)
        self.moved = (0, 0)                 # attempt, and the ticket of the write that moved its record on
        self.counted = Counted()            # what the log counts (supervisor.lostprogress)
        self.pace: LogPace | None = None    # how fast steps are; None = not read yet, then the journal's level counts
        self.figures = FigureWatch()        # its losses and norms, and those of the attempts before
        self.step_start: StepStart | None = None   # an srun that waits for its step
        self.read: ReadLog | None = None    # the last attempt's log, perhaps without its last words

    @property
    def live(self) -> Live | None:
        """The live attempt, with all exits that have been reported."""
        return self._known.take()

    @property
    def number(self) -> int | None:
        """Of the live attempt."""
        return None if self._known.live is None else self._known.live.number

    @property
    def now(self) -> Live:
        """The live attempt; there must be one."""
        live = self.live
        assert live is not None
        return live

    def begins(self, live: Live) -> None:
        """It is announced."""
        self._known.becomes(live)

    def is_launched(self, process: AttemptProcess, now_s: float) -> None:
        """It runs."""
        self.process, self.size, self.heard, self.step_start = process, 0, HeardLog(0, b"", Unread()), None
        self.grew_s, self.was_stopped, self.launched_s = now_s, False, now_s
        self.last_step = LastStep()

    def is_adopted(self, live: Live, process: AttemptProcess | None) -> None:
        """A supervisor before this one has launched it; None: its process is elsewhere, or gone."""
        self._known.becomes(live)
        self.process = process

    def is_asked(self, row: str, now: float) -> None:
        """It was asked to end, or Slurm ends it."""
        self._known.becomes(mark_asked(self.now, row, now))

    def is_killed(self, row: str, now: float, now_s: float) -> None:
        """Every process of it is to end."""
        self._known.becomes(mark_killed(self.now, row, now))
        self.killed_s = now_s

    def has_heard(self, processes: int | None) -> None:
        """So many processes took the signal; None = nobody knows."""
        self._known.becomes(replace(self.now, heard=processes))

    def has_saved(self, path: str, now: float) -> None:
        """A checkpoint has completed since it was asked to end."""
        self._known.becomes(replace(self.now, saved=path, saved_t=now))

    def hangs(self, what: str) -> None:
        """Two witnesses agree on a hang."""
        self._known.becomes(replace(self.now, hung=what))

    def starts(self, waits: StepStart | None) -> None:
        """Its srun waits; None: it does not."""
        self.step_start = waits

    def is_stuck(self, why: str) -> None:
        """Its step never starts."""
        self._known.becomes(replace(self.now, stuck=why))

    def has_lost_progress(self, why: str) -> None:
        """It has surely started below all its checkpoints."""
        self._known.becomes(replace(self.now, lost=why))

    def srun_has_ended(self, code: int) -> None:
        """With this code."""
        self._known.becomes(replace(self.now, srun_code=code))

    def task_has_ended(self, exit: Exit, now: float, now_s: float) -> None:
        """As its guard says; the first report counts."""
        if self._known.adds(exit, now):
            self.exit_s = now_s

    def is_fenced(self, exits: tuple[Exit, ...]) -> None:
        """Nothing of it is left anywhere; its tasks have ended so."""
        self._known.becomes(replace(self.now, fenced=True, exits=exits))

    def is_closed(self) -> None:
        """It has its verdict."""
        self._known.becomes(None)
        self.process = None

    def log_has(self, size: int, now_s: float) -> None:
        """The log is so long now."""
        if size != self.size:
            self.size, self.grew_s = size, now_s

    def has_stepped(self, t: float) -> None:
        """The log has named a new step then."""
        self.last_step = LastStep(t)

    def falls_silent(self) -> None:
        """No step comes: the ranks are checked."""
        self.last_step = self.last_step._replace(is_suspected=True)

    def has_ended_log(self, size: int) -> None:
        """The length of an ended attempt's log, which is no sign of life."""
        self.size = size

    def is_listened_to(self) -> int:
        """The byte from which the log is new; all of it counts as read now."""
        start, self.heard = self.heard.size, self.heard._replace(size=self.size)
        return start

    def stood_still(self, now_s: float, is_long: bool) -> None:
        """This process stood still, so that nobody read the log; perhaps the whole job did."""
        self.grew_s = now_s
        self.was_stopped = self.was_stopped or is_long

    def is_read_on(self, lines: bytes) -> None:
        """What follows is read behind these lines."""
        self.heard = self.heard._replace(known=lines)

    def names_no_step(self, unread: Unread | None) -> None:
        """So far; None: it has named one, or the lines are told."""
        self.heard = self.heard._replace(unread=unread)

    def is_counted(self, counted: Counted) -> None:
        """What its log counts."""
        self.counted = counted

    def goes_so_fast(self, pace: LogPace) -> None:
        """As far as its log was read for that."""
        self.pace = pace

    def has_figures(self, figures: FigureWatch) -> None:
        """As far as its log was read for them."""
        self.figures = figures

    def is_read(self, read: ReadLog) -> None:
        """What its log said when it had ended."""
        self.read = read

    def record_moves(self, number: int, ticket: int) -> None:
        """Its record is to say that it has ended."""
        self.moved = (number, ticket)
