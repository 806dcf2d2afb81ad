"""What `why` says first of a run that lives: from its pulse, its log's end, and the last look at its ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from safelaunch.adapters import attemptfacts, runfolder, sharedfile
from safelaunch.adapters.cputime import TookTooLong, within
from safelaunch.adapters.runfolder import Run
from safelaunch.core.hangs.present import Present
from safelaunch.core.model import Event
from safelaunch.core.progress.figures import measure
from safelaunch.core.progress.steps import AUTO, cut_lines, latest_of
from safelaunch.core.state import Attempt, State
from safelaunch.views.livepulse import read_pulse

TAIL_BYTES = 64 << 10
PATTERNS_S = 1.0     # of processor time


def of_run(run: Run, state: State, journal: Sequence[Event], now: float) -> Present | None:
    """The newest attempt, where it lives; None = none does."""
    attempt = state.attempt
    if attempt is None or attempt.ended is not None or state.ended is not None:
        return None
    folder = run.dir / runfolder.attempt_folder(attempt.number)
    tail, grew_t = _end_of(folder / "main.log")
    pulse = read_pulse(run.dir, state, now)
    is_its = pulse is not None and pulse["attempt"] == attempt.number
    known = [attempt.step, _step_in(tail, run), pulse["step"] if pulse is not None and is_its else None]
    suspected = _last_silence(attempt, journal)
    quiet = [now - t for t in (grew_t, None if suspected is None else suspected.t - float(suspected.data["silent_s"]))
             if t is not None]
    quiet_s = max(quiet, default=None)
    usual_s = (measure(tail).typical_step_s or (None if suspected is None else suspected.data.get("usual_s"))
               or (None if state.pace is None else state.pace.level_s))
    look = attemptfacts.read_look(folder)
    is_of_this = look is not None and quiet_s is not None and look.t > now - quiet_s
    return Present(attempt.number, max((step for step in known if step is not None), default=None), quiet_s, usual_s,
                   look if is_of_this else None, pulse["hang_t"] if pulse is not None and is_its else None)


def _last_silence(attempt: Attempt, journal: Sequence[Event]) -> Event | None:
    """The newest doubt, unless a step has come since."""
    mine = [event for event in journal if event.data.get("attempt") == attempt.number]
    found = next((event for event in reversed(mine) if event.event == "hang_suspected"), None)
    if found is None or (attempt.step or 0) > (found.data.get("step") or 0):
        return None
    return found


def _step_in(tail: bytes, run: Run) -> int | None:
    try:
        return within(PATTERNS_S, lambda: latest_of(tail, run.plan.step_pattern))[0]
    except TookTooLong:
        return latest_of(tail, AUTO)[0]


def _end_of(path: Path) -> tuple[bytes, float | None]:
    """The log's end, and when it was written; no time where there is no log."""
    try:
        with os.fdopen(sharedfile.open_log(path), "rb") as file:
            status = os.fstat(file.fileno())
            file.seek(max(0, status.st_size - TAIL_BYTES))
            return cut_lines(file.read(TAIL_BYTES)), status.st_mtime if status.st_size else None
    except OSError:
        return b"", None
