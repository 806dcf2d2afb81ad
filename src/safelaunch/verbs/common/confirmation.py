"""Whether a stop is confirmed: the supervisor has journalled that it saw the file, or nothing runs."""

from __future__ import annotations

import time

from safelaunch.base.io.probe import ChildAnswer, run_in_child
from safelaunch.base.model import STOPS, TIMED_OUT
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.io.runfolder import Run
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.common.livepulse import read_heartbeat
from safelaunch.verbs.common.talk import Say

CONFIRM_S = 6.0    # the supervisor reads the control files each 3 s, and journals at once
ALIVE_S = 60.0     # one whose heartbeat is fresh may have no turn on its node for so long
POLL_S = 0.1


def await_word(run: Run, name: str, say: Say) -> int:
    """The exit code: 0 when the run has no leader any more, or its supervisor has seen the request `name`. It is
    TIMED_OUT, with a message of what is missing, when nothing confirms that within CONFIRM_S, or within ALIVE_S more
    where the heartbeat of its supervisor is fresh.
    """
    if needs_none(run.state()):
        return 0
    waited_s, answer = CONFIRM_S, _wait(run, name, CONFIRM_S)
    word = None if answer.value else runs.ask_scheduler(run)
    if word is not None and word.jobs == ():
        say("none of its jobs runs any more")
        return 0
    age_s = None if word is None else run_in_child(lambda: _heartbeat_age_s(run), runs.FOLDER_DEADLINE_S).value
    if age_s is not None:
        say(f"its supervisor lives: its pulse is {age_s:.0f} s old. It has not answered yet, and is waited for, up to "
            f"{ALIVE_S:.0f} s. The request stays, whether you wait or not")
        waited_s, answer = CONFIRM_S + ALIVE_S, _wait(run, name, ALIVE_S)
    if word is None or answer.value:
        say("its supervisor has seen it")
        return 0
    trouble = "" if answer.is_ok else f"the journal cannot be read: {answer.error or 'its folder does not answer'}; "
    jobs = "whether its job still runs is unknown" if word.jobs is None else "its job still runs"
    say(talk.clean(
        f"not confirmed: {trouble}the request is there, but the run's supervisor has not written within "
        f"{waited_s:.0f} s that it has seen it, and {jobs}. See whether it does: safelaunch status {run.dir}; repeat "
        f"this; where nobody leads the run any more, only {'kill' if run.plan.cluster == 'local' else 'scancel'} ends "
        f"its job"))
    return TIMED_OUT


def needs_none(state: State) -> bool:
    """Whether nothing runs that a supervisor has to end: the next one reads the requests before it launches."""
    job = state.job
    return state.ended is not None or job is None or job.started_t is None or job.over


def _wait(run: Run, name: str, within_s: float) -> ChildAnswer[bool]:
    return run_in_child(lambda: _is_seen(run, name, within_s), within_s + runs.FOLDER_DEADLINE_S)


def _is_seen(run: Run, name: str, within_s: float) -> bool:
    """Whether the journal shows in that time that a supervisor has seen this stop, or a more urgent one."""
    wanted = STOPS[:STOPS.index(name) + 1]
    end_s, watch = time.monotonic() + within_s, runs.JournalWatch(run.dir)
    while True:
        journal = watch.poll()
        if journal is not None and (
                any(event.event == "kill_switch" and event.data.get("name") in wanted for event in journal.events)
                or needs_none(fold(journal.events))):
            return True
        if time.monotonic() > end_s:
            return False
        time.sleep(POLL_S)


def _heartbeat_age_s(run: Run) -> float | None:
    """How old the heartbeat of a supervisor is that lives as far as that shows; None = there is none."""
    pulse = read_heartbeat(run.dir, run.state(), time.time())
    return None if pulse is None or pulse.is_stale else pulse.age_s
