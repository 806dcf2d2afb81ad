"""safelaunch wait: until a run has ended; ends with the run's own exit code."""

from __future__ import annotations

import time

import click

from safelaunch.adapters.runfolder import Run
from safelaunch.core.config.values import parse_duration_s
from safelaunch.core.endings import RunEnd
from safelaunch.core.folding import fold
from safelaunch.core.model import FAILED_FOR_GOOD
from safelaunch.core.state import Ended, State
from safelaunch.core.status.states import describe_alone
from safelaunch.errors import ParseError, UsageError, WaitTimedOut
from safelaunch.views import runs, talk

POLL_S = (0.2, 2.0)     # an end is seen within 2 s; the shared folder is asked once in that time
ASK_EVERY_S = 60.0      # a courtesy to slurmctld: design §7
WITNESSES = 2           # an empty answer is not yet a lost job (law 4)


@click.command()
@runs.run_argument
@click.option("--timeout", metavar="TIME", help="Give up after 90s, 15m, 1h30m …, with exit code 124.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout when the run has ended.")
def command(which: str | None, timeout: str | None, as_json: bool) -> int:
    """Wait until a run has ended, and end with its exit code.

    0 done, 10 failed for good, 11 restart budget spent, 12 stopped, 13 boot check failed, 124 waited in vain.
    One whose last job failed without a supervisor has failed for good once Slurm shows no other job of it.
    A job that Slurm has lost is said once on stderr and waited for: only a person, or a time-out, gives a run up.
    """
    timeout_s = _parse_timeout(timeout)
    return wait_for(runs.load(which), timeout_s, as_json)


def wait_for(run: Run, timeout_s: float | None, as_json: bool = False) -> int:
    """The run's exit code, once it has ended; raises WaitTimedOut."""
    ended = _await_end(run, timeout_s)
    if as_json:
        talk.emit_json({"v": 1, "name": run.plan.name, "run_dir": str(run.dir), "state": ended.how,
                        "exit_code": ended.exit_code, "why": ended.why, "t": ended.t})
    else:
        talk.say(talk.clean(runs.describe_end(ended)))
    return ended.exit_code


def _await_end(run: Run, timeout_s: float | None) -> Ended:
    watch, state = runs.JournalWatch(run.dir), State()
    begin_s = time.monotonic()
    doubt = _Doubt(run, begin_s)
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
        if doubt.is_over(state, now_s) and state.failed_alone is not None:
            why = describe_alone(*state.failed_alone)
            return Ended(RunEnd.GAVE_UP, FAILED_FOR_GOOD, why, state.last_t or time.time())
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 1.5, POLL_S[1])


class _Doubt:
    """Asks the scheduler now and then whether the run still has a job, and says so once when it has none."""

    def __init__(self, run: Run, now_s: float) -> None:
        self._run, self._next_s = run, now_s + ASK_EVERY_S
        self._absent = 0

    def is_over(self, state: State, now_s: float) -> bool:
        """Ask if it is time; whether no job is left, as two answers say."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + ASK_EVERY_S
        jobs = runs.ask_scheduler(self._run).jobs
        self._absent = self._absent + 1 if jobs == () else 0
        if self._absent == WITNESSES and state.failed_alone is None:
            talk.say(f"unknown: no job of {self._run.plan.name} is left, and its journal holds no end; waiting on. "
                     f"See safelaunch status {self._run.dir}")
        return self._absent >= WITNESSES


def _parse_timeout(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration_s(text)
    except ParseError as error:
        raise UsageError(f"--timeout {text}: {error.message}") from error
