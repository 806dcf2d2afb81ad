"""Waiting until a run has ended: its journal is read, and Slurm asked at intervals whether a job is left."""

from __future__ import annotations

import time

from safelaunch.base.endings import RunEnd
from safelaunch.base.model import FAILED_FOR_GOOD
from safelaunch.errors import WaitTimedOut
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import Ended, State
from safelaunch.run.io.runfolder import Run
from safelaunch.status.states import describe_alone
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.common.talk import Say

POLL_S = (0.2, 2.0)     # an end is seen within 2 s; the shared folder is asked once in that time
ASK_EVERY_S = 60.0      # a courtesy to slurmctld
WITNESSES = 2           # an empty answer is not yet a lost job


def await_end(run: Run, timeout_s: float | None, say: Say) -> Ended:
    """How the run ended; raises WaitTimedOut after `timeout_s`, None = never. That Slurm lost its jobs is told once."""
    watch, state = runs.JournalWatch(run.dir), State()
    begin_s = time.monotonic()
    doubt = _Doubt(run, begin_s, say)
    pause_s = POLL_S[0]
    while True:
        journal = watch.poll()
        if journal is not None:
            state, pause_s = fold(journal.events), POLL_S[0]
        if state.ended is not None:
            return state.ended
        now_s = time.monotonic()
        left_s = float("inf") if timeout_s is None else begin_s + timeout_s - now_s
        if left_s <= 0:
            raise WaitTimedOut(f"{run.plan.name} has not ended within {talk.span(timeout_s or 0)}; it is {state.name}",
                               hint=f"see it: safelaunch status {run.dir}")
        if doubt.check_over(state, now_s) and state.failed_alone is not None:
            why = describe_alone(*state.failed_alone)
            return Ended(RunEnd.GAVE_UP, FAILED_FOR_GOOD, why, state.last_t or time.time())
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 1.5, POLL_S[1])


class _Doubt:
    """Asks the scheduler at intervals whether the run still has a job, and reports once that it has none."""

    def __init__(self, run: Run, now_s: float, say: Say) -> None:
        self._run, self._next_s, self._say = run, now_s + ASK_EVERY_S, say
        self._absent = 0

    def check_over(self, state: State, now_s: float) -> bool:
        """Ask if it is time; whether no job is left, as two answers say."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + ASK_EVERY_S
        jobs = runs.ask_scheduler(self._run).jobs
        self._absent = self._absent + 1 if jobs == () else 0
        if self._absent == WITNESSES and state.failed_alone is None:
            self._say(f"unknown: no job of {self._run.plan.name} is left, and its journal has no end; still waiting. "
                      f"See safelaunch status {self._run.dir}")
        return self._absent >= WITNESSES
