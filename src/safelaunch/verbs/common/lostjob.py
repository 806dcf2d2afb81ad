"""A run whose journal calls it alive, and whose job is over: it was preempted or killed before a word was written."""

from __future__ import annotations

import time

from safelaunch.errors import UsageError
from safelaunch.run.fold.state import State
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import via
from safelaunch.status.states import WAITING, judge
from safelaunch.verbs.common import runs
from safelaunch.verbs.common.speech import SPEECH


def why_lost(run: Run, state: State) -> str:
    """What Slurm says of a run that the journal calls alive and whose job is over: the run waits in the queue,
    or no job goes on with it, and what queues one; "" = it lives, it has ended, or nobody can tell.
    """
    if state.ended is not None:
        return ""
    told = judge(state, runs.ask_scheduler(run), SPEECH, time.time(),
                 is_local=run.plan.cluster == "local")
    if told.name == "unknown":
        return told.sentence + ("; to queue one: safelaunch watch --once" if via.has_next_job(run.plan.cluster) else "")
    is_open = state.attempt is not None and state.attempt.ended is None
    return told.sentence if told.name == WAITING and is_open else ""


def refuse_lost(run: Run, state: State, what: str) -> None:
    """Raise UsageError where nothing runs that could do `what`, as Slurm says."""
    if lost := why_lost(run, state):
        raise UsageError(f"nothing runs that could {what}: {lost}", hint=f"see: safelaunch status {run.dir}")
