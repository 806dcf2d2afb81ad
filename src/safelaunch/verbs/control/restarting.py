"""Ending a run's attempt so that the next one starts now, or ending the pause before it (control/restart)."""

from __future__ import annotations

import time
from typing import NamedTuple

from safelaunch.base.model import DONE, TIMED_OUT
from safelaunch.errors import UsageError
from safelaunch.run.fold.state import State
from safelaunch.run.io.runfolder import Run
from safelaunch.verbs.common import controls, lostjob, runs, talk

SEEN_WITHIN_S, POLL_S = 8.0, 0.2   # the supervisor reads the control files each 3 s


class RestartAnswer(NamedTuple):
    """Whether its supervisor has seen the request, which attempt it ends (None: none ran), and one sentence."""

    is_seen: bool
    attempt: int | None
    sentence: str

    @property
    def exit_code(self) -> int:
        """124: no supervisor has seen it; the request stays."""
        return DONE if self.is_seen else TIMED_OUT


def restart(run: Run, is_now: bool) -> RestartAnswer:
    """Ask for the next attempt. Raises UsageError where none can follow, and RunFolderError."""
    state = run.state()
    _refuse(run, state)
    name = "restart-now" if is_now else "restart"
    asked = controls.renew(run.dir / "control" / name, round(time.time(), 3))
    is_seen = _is_seen(run, asked.t)
    attempt = state.attempt if state.attempt is not None and state.attempt.ended is None else None
    what = _announce(run, state, is_now)
    missing = ("" if is_seen else ". No supervisor has seen that yet; it counts as soon as one does. See: "
               f"safelaunch status {run.dir}")
    return RestartAnswer(is_seen, attempt.number if attempt else None, f"{what}{missing}")


def _refuse(run: Run, state: State) -> None:
    if state.ended is not None:
        raise UsageError(f"it cannot go on: {runs.describe_end(state.ended)}",
                         hint="a new run from the newest checkpoint: safelaunch submit train.yaml")
    if state.preserving_until is not None:
        raise UsageError("it has failed for good, and its nodes are kept for inspection",
                         hint=f"give them back: safelaunch release {run.dir}; then submit it again")
    if (hold := controls.look(run.dir / "control" / "hold")) is not None:
        raise UsageError(f"{hold.who} put the run on hold", hint=f"let it go on: safelaunch resume {run.dir}")
    if state.job is None or state.job.started_t is None:
        raise UsageError("its first job has not started: nothing is to be restarted",
                         hint=f"why it waits: safelaunch status {run.dir}")
    lostjob.refuse_lost(run, state, "be restarted")


def _announce(run: Run, state: State, is_now: bool) -> str:
    attempt = state.attempt
    if attempt is None or attempt.ended is not None:
        return f"the next attempt of {run.plan.name} starts without a pause"
    how = "is ended at once" if is_now else f"has {talk.span(run.plan.kill_switch.grace_s)} to save and end"
    return (f"attempt {attempt.number} of {run.plan.name} {how}. The next one starts from the newest complete "
            "checkpoint, with the code as it is then, and costs no budget; its train.yaml stays that of the submission")


def _is_seen(run: Run, touched_t: float) -> bool:
    """Whether the journal shows that a supervisor has read the request."""
    end_s, watch = time.monotonic() + SEEN_WITHIN_S, runs.JournalWatch(run.dir)
    while time.monotonic() < end_s:
        journal = watch.poll()
        if journal is not None and any(event.event == "request" and event.data.get("touched_t") == touched_t
                                       for event in journal.events):
            return True
        time.sleep(POLL_S)
    return False
