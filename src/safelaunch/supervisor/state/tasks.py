"""Background work: acts that wait between their parts, each under a typed key, none of them twice at once."""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import NamedTuple

from safelaunch.slurm.io.slurm import Command, Result
from safelaunch.supervisor.state.clock import Clock

# An act that waits between its parts: it yields a command, whose result it is sent, or seconds to wait.
Step = Generator[Command | float, Result | None, None]


class Work(Enum):
    """All that a leader does beside its loop."""

    ASK_TO_END = "ask the ranks to end"                    # one a row of decide
    ASK_TO_SAVE = "ask the ranks to save and go on"
    WAIT_FOR_CHECKPOINT = "wait for the next checkpoint"   # one an attempt and row
    CHECK_NODES = "check nodes before an attempt"
    BENCH_NODES = "measure nodes before an attempt"
    ASK_NODES = "ask for the nodes that a full set lacks"
    CHECK_SUSPECTS = "check suspects beside an attempt"    # one an attempt
    REMOVE_SPENT = "remove outputs of before_resize that nothing goes on from"
    INSPECT = "inspect the nodes of an attempt"            # one an attempt
    INSPECT_AFTER = "inspect the nodes of failed attempts"
    NOTE_USE = "tell the ledger that nodes were used"      # one an attempt
    SWEEP = "end what is left of an attempt on a node"     # one a node
    TICKET = "write a text for the administrators"         # one a node
    COPY_REST = "copy the rest of a log"                   # one an attempt
    CHECK_RANKS = "sample silent ranks"
    FORGET_LOG = "keep a log that nobody copies from filling the disk"
    LOOK_ELSEWHERE = "ask another node whether the run folder is gone"
    THAW = "wait for a filesystem that ranks sleep on"
    PROBE = "test a silent node by a helper step"          # one a node
    PROBE_MISSING = "test a node of which no guard has connected by a helper step"   # one a node
    ASK_ALONE = "ask Slurm whether this node is cut off"
    ASK_STEPS = "ask which steps run while one cannot start"   # one an attempt
    COUNT_STEPS = "count the steps of this job"
    OLD_HOST = "wait for the guards of the leader before"
    ASK_ADDRESSES = "ask for the addresses of nodes"
    ASK_AVAILABLE = "ask for the nodes of the partition"
    ASK_VERSION = "ask for the release of Slurm"
    WATCH_LIMIT = "watch the time limit"
    EXPLAIN_TERM = "find out why a TERM has come"
    EXPLAIN_STEP = "find out who ended the attempt's step"
    LOOK_AT_OTHERS = "ask how the runs before this one are doing"
    SHRINK = "give nodes back"
    QUEUE_NEXT = "queue the next job"
    WATCH_NEXT = "watch the next job in the queue"
    END_JOB_BEFORE = "end the job before"
    NOTIFY = "tell people"
    HAND_OVER = "hand the run over"
    FINISH = "end the run"


class TaskKey(NamedTuple):
    """One piece of work; `of` tells it from others of its kind: a node, an attempt, a row."""

    work: Work
    of: str | int | None = None


class BackgroundTasks:
    """The acts that are under way, in the order in which they began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: dict[TaskKey, tuple[Step, Command | float]] = {}   # what each waits for: a command, or until when

    def begin(self, work: Work, step: Step, of: str | int | None = None) -> None:
        """Start an act, unless the same is under way."""
        key = TaskKey(work, of)
        if key not in self._tasks:
            self._tasks[key] = (step, 0.0)
            self._advance(key, None)

    def cancel(self, work: Work) -> None:
        """Forget an act that is not one of many of its kind."""
        self._tasks.pop(TaskKey(work), None)

    def is_running(self, *works: Work) -> bool:
        """Whether an act of one of these kinds is under way."""
        return any(key.work in works for key in self._tasks)

    @property
    def is_leaving(self) -> bool:
        """Whether the run is being handed over, or ended: nothing starts beside that."""
        return self.is_running(Work.HAND_OVER, Work.FINISH)

    @property
    def has_unfinished_work(self) -> bool:
        """What a supervisor waits for before it goes: something of an ended attempt is still on its way into the
        run folder, or the job before this one is being ended, which nobody else would do (simulated: test_found "a job
        that is left without a script is ended by a next one that hands over at once").
        """
        return self.is_running(Work.COPY_REST, Work.INSPECT_AFTER, Work.NOTE_USE, Work.END_JOB_BEFORE)

    def waits_for_command(self, work: Work) -> bool:
        """Whether this act runs a command at this moment, and does not only sleep."""
        task = self._tasks.get(TaskKey(work))
        return task is not None and isinstance(task[1], Command)

    def waits_s(self, command_tick_s: float) -> list[float]:
        """For each act the seconds until its next turn."""
        return [command_tick_s if isinstance(wanted, Command) else wanted - self._clock.now_s
                for _, wanted in self._tasks.values()]

    def advance(self) -> None:
        """Go on with every act whose command has ended or whose time has come."""
        for key in list(self._tasks):
            waiting = self._tasks[key][1] if key in self._tasks else None
            if isinstance(waiting, Command):
                result = waiting.poll()
                if result is not None:
                    self._advance(key, result)
            elif waiting is not None and self._clock.now_s >= waiting:
                self._advance(key, None)

    def _advance(self, key: TaskKey, result: Result | None) -> None:
        """Send an act what it waited for, and note what it wants next."""
        step = self._tasks[key][0]
        try:
            wanted = step.send(result)
        except StopIteration:
            self._tasks.pop(key, None)
            return
        if key in self._tasks:
            until = wanted if isinstance(wanted, Command) else self._clock.now_s + wanted
            self._tasks[key] = (step, until)
