"""Whether a stop is confirmed: the supervisor has journalled that it saw the file, or nothing runs."""

from __future__ import annotations

import time

from safelaunch.adapters.probe import run_in_child
from safelaunch.adapters.runfolder import Run
from safelaunch.core.folding import fold
from safelaunch.core.model import STOPS, TIMED_OUT
from safelaunch.core.state import State
from safelaunch.views import runs, talk
from safelaunch.views.talk import Say

CONFIRM_S = 6.0    # the supervisor reads the control files each 3 s, and journals at once
POLL_S = 0.1


def await_word(run: Run, name: str, say: Say) -> int:
    """The exit code: 0 when the run has no leader any more, or its supervisor has seen the request `name`. It is
    TIMED_OUT, with a message of what is missing, when nothing confirms that within CONFIRM_S.
    """
    if needs_none(run.state()):
        return 0
    answer = run_in_child(lambda: _is_seen(run, name), CONFIRM_S + runs.FOLDER_DEADLINE_S)
    if answer.value:
        say("its supervisor has seen it")
        return 0
    word = runs.ask_scheduler(run)
    if word.jobs == ():
        say("none of its jobs runs any more")
        return 0
    trouble = "" if answer.is_ok else f"the journal cannot be read: {answer.error or 'its folder does not answer'}; "
    jobs = "whether its job still runs is unknown" if word.jobs is None else "its job still runs"
    say(talk.clean(
        f"not confirmed: {trouble}the request is there, but the run's supervisor has not written within "
        f"{CONFIRM_S:.0f} s that it has seen it, and {jobs}. See whether it does: safelaunch status {run.dir}; repeat "
        f"this; where nobody leads the run any more, only {'kill' if run.plan.cluster == 'local' else 'scancel'} ends "
        f"its job"))
    return TIMED_OUT


def needs_none(state: State) -> bool:
    """Whether nothing runs that a supervisor has to end: the next one reads the requests before it launches."""
    job = state.job
    return state.ended is not None or job is None or job.started_t is None or job.over


def _is_seen(run: Run, name: str) -> bool:
    """Whether the journal shows within CONFIRM_S that a supervisor has seen this stop, or a more urgent one."""
    wanted = STOPS[:STOPS.index(name) + 1]
    end_s, watch = time.monotonic() + CONFIRM_S, runs.JournalWatch(run.dir)
    while True:
        journal = watch.poll()
        if journal is not None and (
                any(event.event == "kill_switch" and event.data.get("name") in wanted for event in journal.events)
                or needs_none(fold(journal.events))):
            return True
        if time.monotonic() > end_s:
            return False
        time.sleep(POLL_S)
