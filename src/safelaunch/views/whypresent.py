"""What `why` says first of a run that lives: from its pulse, its log's end, and the last look at its ranks."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.adapters import attemptfacts, runfolder
from safelaunch.adapters.runfolder import Run
from safelaunch.core.hangs.present import Present
from safelaunch.core.model import Event
from safelaunch.core.state import State
from safelaunch.core.status import costs, silence
from safelaunch.views.livepulse import read_figures, read_heartbeat, read_log, usual_s


def of_run(run: Run, state: State, journal: Sequence[Event], now: float) -> Present | None:
    """The newest attempt, where it lives; None = none does."""
    attempt = state.attempt
    if attempt is None or attempt.ended is not None or state.ended is not None:
        return None
    pulse = read_heartbeat(run.dir, state, now)
    log = read_log(run, state, pulse)
    step_t = silence.step_t(pulse, log.step, log.grew_t)
    usual = usual_s(read_figures(run, log.tail), costs.follow(journal, now, log.step, step_t))
    late = silence.find(state, pulse, log.step, log.grew_t, usual, now)
    since_t = step_t if late is None else late.since_t
    look = attemptfacts.read_look(run.dir / runfolder.attempt_folder(attempt.number))
    is_its = pulse is not None and pulse["attempt"] == attempt.number
    return Present(attempt.number, log.step, None if since_t is None else now - since_t, usual, late,
                   look if late is not None and look is not None and look.t > late.since_t else None,
                   pulse["hang_t"] if pulse is not None and is_its else None)
