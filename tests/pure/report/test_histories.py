"""The account of a run against a truth that does not come from it: histories are played as what the training and the
cluster do, second by second, and a clerk writes the journal as a supervisor does, who sees a part of that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from safelaunch.base.model import Event
from safelaunch.run.fold.folding import fold
from safelaunch.status import shares
from safelaunch.status.shares import BOOT, DOWN, HANG, KEPT, QUEUE, REDONE, START, UNREAD, USEFUL, Account
from tests.tables import each

POINT = 0.01         # of the wall clock
LOOK_S = 5.0         # the log is read so often
SILENT_S = 55.0      # then ranks are checked
MINUTE_S = 60.0


class Tape:
    """A history: what happens (`truth`, seconds by kind), and what the journal says of it. `is_old`: as written before
    steps had the time at which the log named them.
    """

    def __init__(self, is_old: bool = False) -> None:
        self.is_old, self.t, self.truth = is_old, 1000.0, defaultdict[str, float](float)
        self.rows: list[Event] = []
        self.number, self.job = 0, 0
        self.step = self.high = self.told = self.first = 0
        self.told_t, self.step_t, self.is_suspected, self.is_read = 0.0, 0.0, False, True
        self.write("submitted", job="1")

    def write(self, kind: str, t: float | None = None, **data: Any) -> None:
        """A line of the journal."""
        self.rows.append(Event(self.t if t is None else t, 1, len(self.rows), "n0", kind, data))

    def spend(self, kind: str, seconds: float) -> Tape:
        """So much time of that kind, of which the journal has no line."""
        self.truth[kind] += seconds
        self.t += seconds
        return self

    def starts(self, queue_s: float, boot_s: float = 5.0) -> Tape:
        """A job, after its time in the queue."""
        self.spend(QUEUE, queue_s)
        self.job += 1
        self.write("job_started", job=str(self.job), nodes=["n0", "n1"], batch_host="n0")
        return self.spend(BOOT, boot_s)

    def begins(self, resume: int | None = 0, start_s: float = 20.0, own: int = 0, **more: Any) -> Tape:
        """An attempt, up to where its first step begins; `own`: where the script goes on by itself."""
        self.number += 1
        self.step, self.told = (resume or own), 0
        self.first = self.step + 1
        self.write("attempt_started", attempt=self.number, job=str(self.job), resume_step=resume, **more)
        return self.spend(START, start_s)

    def trains(self, steps: int, pace_s: float = 0.5) -> Tape:
        """Steps; the first one of an attempt ends its start."""
        for _ in range(steps):
            self.step += 1
            is_first = not self.told
            self.spend(START if is_first else REDONE if self.step <= self.high else USEFUL, pace_s)
            self.high, self.step_t = max(self.high, self.step), self.t
            is_due = self.t - self.told_t >= MINUTE_S or ((is_first or self.is_suspected) and not self.is_old)
            if self.is_read and (is_due or is_first):
                self.told = self.step
            if self.is_read and is_due:
                self.names(self.t)
        return self

    def names(self, t: float) -> None:
        """A line for the last step, written at `t`, within LOOK_S of it."""
        at = {} if self.is_old else {"at_t": round(self.step_t, 2), "first": self.first}
        self.told_t, self.is_suspected = t, False
        late_s = min(LOOK_S, (self.number * 1.7) % LOOK_S)
        self.write("progress", t + late_s, attempt=self.number, step=self.step, **at)

    def suspects(self, is_work: bool | None, at_s: float = SILENT_S) -> None:
        """The check of the ranks after so much silence, with its result."""
        self.is_suspected = True
        step_t = {} if self.is_old else {"step_t": self.step_t}
        self.write("hang_suspected", self.step_t + at_s, attempt=self.number, silent_s=at_s, phase="step",
                   step=self.step or None, **step_t)
        if is_work is not None and not self.is_old:
            self.write("decision", self.step_t + at_s + 12, row="hang", why="…", attempt=self.number, is_work=is_work)

    def evaluates(self, seconds: float) -> Tape:
        """Long, and nobody says so: its check sees the ranks work."""
        if seconds > SILENT_S + 12:
            self.suspects(True)
        return self.spend(USEFUL if self.step >= self.high else REDONE, seconds)

    def stands(self, seconds: float) -> Tape:
        """Nothing moves, and then it goes on: a frozen folder."""
        self.suspects(False)
        self.is_suspected = True
        return self.spend(HANG, seconds)

    def hangs(self, seconds: float, then: str = "hung") -> Tape:
        """It never goes on; its end comes after so long."""
        self.suspects(False)
        self.spend(HANG, seconds)
        return self.ends("failed", asked=then)

    def fails(self, after_s: float = 3.0, how: str = "failed", **more: Any) -> Tape:
        """The attempt ends so long after its last step."""
        self.spend(DOWN if self.told else START if self.is_read else UNREAD, after_s)
        return self.ends(how, **more)

    def completes(self, after_s: float = 4.0) -> Tape:
        """All is done."""
        self.spend(USEFUL if self.told or self.is_read else UNREAD, after_s)
        self.ends("completed")
        self.write("completed", exit_code=0, why="done")
        return self

    def ends(self, how: str, asked: str | None = None) -> Tape:
        """The end, with the last step of the log."""
        if self.is_read and self.told:
            at = {} if self.is_old else {"at_t": round(self.step_t, 2)}
            self.write("progress", attempt=self.number, step=self.step, **at)
        self.write("attempt_ended", attempt=self.number, how=how, asked=asked)
        return self

    def keeps(self, seconds: float, until_s: float = 1e4) -> Tape:
        """Nodes are kept for people, who let them go."""
        self.write("preserved", until=self.t + until_s, nodes=["n0"])
        self.spend(KEPT, seconds)
        self.write("released")
        return self

    def hands_over(self) -> Tape:
        """The next job has the run."""
        self.write("handed_over", job=str(self.job + 1), exclude=[], why="…")
        return self

    def settle(self) -> Account:
        """The account of the journal, as of now."""
        events = sorted(self.rows, key=lambda event: (event.t, event.seq))
        return shares.settle(events, fold(events), self.t, self.step if self.told else None, self.step_t)


Play = Callable[[], Tape]


def _new(is_old: bool = False) -> Tape:
    return Tape(is_old).starts(30)


def _first(steps: int = 400, is_old: bool = False, pace_s: float = 0.5) -> Tape:
    return _new(is_old).begins(None).trains(steps, pace_s)


def _unread(**more: Any) -> Tape:
    tape = _new()
    tape.is_read = False
    return tape.begins(None, start_s=0).spend(UNREAD, more.get("seconds", 900.0))


def _takeover() -> Tape:
    """The batch host dies: the last step is known from the log in the run folder, and nobody knows when it was made."""
    tape = _first(300).spend(DOWN, 12)
    tape.rows.append(Event(tape.t, 2, len(tape.rows), "n1", "took_over", {"job": "1", "before": "n0"}))
    tape.write("progress", attempt=1, step=tape.step)
    tape.write("attempt_ended", attempt=1, how="lost")
    return tape.spend(DOWN, 4).begins(280).trains(300).completes()


def _preserved_hang() -> Tape:
    """hang.then: preserve: the hung processes are kept, and then ended."""
    tape = _first(300)
    tape.suspects(False)
    tape.spend(HANG, 120).keeps(400).ends("failed", asked="hung")
    return tape.spend(DOWN, 3).begins(300).trains(200).completes()


def _boot_fails() -> Tape:
    """The second job's nodes fail their checks: it hands over to a third without an attempt."""
    return (_first(300).fails(how="interrupted").hands_over().starts(200, 30).hands_over().starts(100)
            .begins(300).trains(200).completes())


HISTORIES: dict[str, Play] = {
    "nothing happens": lambda: _first(800).completes(),
    "it runs still": lambda: _first(800),
    "a minute only": lambda: _first(80).completes(),
    "steps of a minute": lambda: _first(40, pace_s=60.0).completes(),
    "a crash": lambda: _first(500).fails().spend(DOWN, 2).begins(450).trains(400).completes(),
    "a crash right at a checkpoint": lambda: _first(500).fails().spend(DOWN, 2).begins(500).trains(400).completes(),
    "three crashes": lambda: (_first(300).fails().begins(250).trains(100).fails().spend(DOWN, 60).begins(300)
                              .trains(300).fails().begins(500).trains(200).completes()),
    "a crash within the first minute of a restart": lambda: (_first(300).fails().begins(250, 5).trains(20).fails()
                                                             .begins(250, 5).trains(200).completes()),
    "crashes before the first step": lambda: _new().begins(None, 8).fails(2).spend(DOWN, 60).begins(None, 8).fails(2),
    "from the start each time": lambda: _first(300).fails().begins(None).trains(500).completes(),
    "a script that resumes by itself": lambda: (_first(300).fails().begins(None, own=280).trains(300).completes()),
    "a hang, ended": lambda: _first(180).hangs(300).spend(DOWN, 2).begins(160).trains(400).completes(),
    "a hang for most of the run": lambda: _first(180).hangs(840).spend(DOWN, 2).begins(160).trains(30),
    "a hang that lasts": lambda: _stuck(_first(180), 840),
    "a hang that began half a minute after the last line": lambda: _stuck(_first(150), 300),
    "a hang before the first step": lambda: _stuck_start(1200),
    "the time limit ends a hang": lambda: _first(300).hangs(400, "limit_near").hands_over().starts(60).begins(280)
                                          .trains(300).completes(),
    "old: a stuck loader (load1)": lambda: _stuck(_first(180, is_old=True), 840),
    "old: a deadlock (skip1)": lambda: _first(180, is_old=True).hangs(302).spend(DOWN, 2).begins(170, 2),
    "old: a stopped rank (stop1)": lambda: _first(100, is_old=True).hangs(75).spend(DOWN, 2).begins(80).trains(60),
    "a frozen folder": lambda: _first(300).stands(400).trains(300).completes(),
    "frozen twice, then a crash": lambda: (_first(300).stands(100).trains(50).stands(200).trains(100).fails()
                                           .begins(400).trains(200).completes()),
    "frozen while steps are made again": lambda: _first(400).fails().begins(200).trains(60).stands(300).trains(400),
    "evaluations that nobody announces": lambda: (_first(300).evaluates(200).trains(200).evaluates(200).trains(200)
                                                  .completes()),
    "a takeover": _takeover,
    "preempted, and back": lambda: _first(500).fails(30, "interrupted").hands_over().starts(900).begins(490)
                                   .trains(300).completes(),
    "time limits": lambda: (_first(400).fails(15, "interrupted").hands_over().starts(40).begins(400).trains(400)
                            .fails(15, "interrupted").hands_over().starts(50).begins(800).trains(200).completes()),
    "a job whose nodes fail their checks": _boot_fails,
    "a pause before the next job is asked for": lambda: (_first(300).fails().spend(DOWN, 200).hands_over().starts(60)
                                                         .begins(290).trains(300).completes()),
    "a preserved site": lambda: _first(300).fails().keeps(600).spend(DOWN, 3).begins(280).trains(300).completes(),
    "preserved until its time is up": lambda: _kept_out(_first(300).fails(), 500),
    "a preserved hang": _preserved_hang,
    "steps that are not read": lambda: _unread().completes(10),
    "steps that are not read, at a time limit": lambda: _unread().fails(0, "interrupted").hands_over().starts(30),
    "steps that are not read, and it runs still": _unread,
    "a conversion for fewer nodes": lambda: (_first(300).fails()
                                             .begins(280, 90, resize={"from": 2, "to": 1, "output": ""})
                                             .ends("converted").spend(DOWN, 2).begins(280).trains(300).completes()),
}


def _stuck(tape: Tape, seconds: float) -> Tape:
    tape.suspects(False)
    return tape.spend(HANG, seconds)


def _stuck_start(seconds: float) -> Tape:
    tape = _first(300).fails().begins(280, 0)
    tape.step_t, tape.step = tape.t, 0
    tape.suspects(False, 600)
    return tape.spend(HANG, seconds)


def _kept_out(tape: Tape, seconds: float) -> Tape:
    tape.write("preserved", until=tape.t + seconds, nodes=["n0"])
    return tape.spend(KEPT, seconds).spend(DOWN, 40).begins(280).trains(300).completes()


@each("play", HISTORIES.values(), ids=HISTORIES)
def test_the_account_is_what_happened(play: Play) -> None:
    tape = play()
    told, whole_s = tape.settle().seconds, sum(tape.truth.values())
    assert abs(sum(told.values()) - whole_s) <= 0.01
    off = {kind: (round(told[kind], 1), round(tape.truth[kind], 1)) for kind in told
           if abs(told[kind] - tape.truth[kind]) > POINT * whole_s}
    assert not off, f"of {whole_s:.0f} s, told and true: {off}"


@each("name", [name for name in HISTORIES if "not read" in name])
def test_where_no_step_is_read_nobody_knows_what_was_useful(name: str) -> None:
    assert HISTORIES[name]().settle().goodput is None


@each("play", HISTORIES.values(), ids=HISTORIES)
def test_the_restart_overhead_is_no_more_than_what_was_not_useful(play: Play) -> None:
    account = play().settle()
    lost_s = sum(seconds for kind, seconds in account.seconds.items() if kind != USEFUL)
    assert account.costs.seconds <= lost_s + 0.01
