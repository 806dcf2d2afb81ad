"""Asking a training to save now and go on (control/save), and waiting until its new checkpoint is complete.

The training takes the request by removing the file, as safelaunch's callbacks do, or takes the signal of
kill_switch.save_signal. So it shows whether anybody listens.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from safelaunch.base.io.probe import run_in_child
from safelaunch.base.model import DONE, TIMED_OUT
from safelaunch.checkpoints.io import checkpoints
from safelaunch.errors import RunFolderError, UsageError
from safelaunch.node import fresh
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.io import runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.run.saved import Newest, Seen, judge
from safelaunch.verbs.common import controls, lostjob, resumepoints, runs, talk
from safelaunch.verbs.common.talk import Say

LOOK_S = 2.0        # a second look confirms a new checkpoint: its files are written one after the other
UNHEARD_S = 60.0    # after that people are told that nobody has taken the request yet
HOW = ("to add it: safelaunch's callback (safelaunch help callbacks), or: save when the file $SAFELAUNCH_SAVE_FILE is "
       "there, and remove it; or a signal: kill_switch.save_signal")
ALONE = ". Nobody has taken the request: the training saved because it was due"


class SaveAnswer(NamedTuple):
    """What came of it: saved, taken (nobody can tell whether it is complete), unheard, late or ended."""

    outcome: str
    sentence: str
    checkpoint: Newest | None = None

    @property
    def exit_code(self) -> int:
        """0 where the training has saved, as far as that can be known."""
        return DONE if self.outcome in ("saved", "taken") else TIMED_OUT


def save(run: Run, within_s: float | None, say: Say) -> SaveAnswer:
    """Ask for a checkpoint, and wait for it: `within_s` at most, by default kill_switch.grace. Raises UsageError where
    nothing runs that could save, and RunFolderError.
    """
    state = run.state()
    if (number := _living(state)) is None:
        raise UsageError(f"nothing runs that could save: {run.plan.name} is {state.name}",
                         hint=f"see: safelaunch status {run.dir}")
    lostjob.refuse_lost(run, state, "save")
    within_s = run.plan.kill_switch.grace_s if within_s is None else within_s
    place = resumepoints.of_run(run)
    before, answers = _newest(place), len(runs.ask(lambda: _read(run), str(run.dir))[1])
    path = run.dir / "control" / runfolder.SAVE
    touched = controls.touch(path)
    since = "" if touched.is_new else f" ({touched.who} has asked for that already, at {talk.moment(touched.t)})"
    say(f"{run.plan.name} is asked to save and go on{since}; waiting for that, {talk.span(within_s)} at most")
    try:
        outcome, seen = _wait(lambda: _look(run, place, answers), number, before, within_s, place is not None, say)
    finally:   # what nobody has taken would have the next attempt save at its start
        if touched.is_new:
            controls.remove(path)
    return SaveAnswer(outcome, _tell(run, outcome, seen, within_s), seen.newest if outcome == "saved" else None)


def _wait(look: Callable[[], Seen], number: int, before: Newest | None, within_s: float, has_folder: bool,
          say: Say) -> tuple[str, Seen]:
    begun_s, told, confirmed = time.monotonic(), False, None
    while True:
        seen, waited_s = look(), time.monotonic() - begun_s
        outcome = judge(before, number, seen, confirmed, is_late=waited_s >= within_s, has_folder=has_folder)
        if outcome is not None:
            return outcome, seen
        if not told and waited_s > UNHEARD_S and seen.is_there and not seen.heard:
            told = True
            say(f"nobody has taken the request yet. {HOW}")
        confirmed = seen.newest
        time.sleep(min(LOOK_S, max(0.1, within_s - waited_s)))


def _look(run: Run, place: resumepoints.CheckpointPlace | None, before: int) -> Seen:
    living, answers = runs.ask(lambda: _read(run), str(run.dir))
    newest = None
    with contextlib.suppress(RunFolderError):   # a look later it may answer
        newest = _newest(place)
    return Seen(controls.look(run.dir / "control" / runfolder.SAVE) is not None,
                answers[-1] if len(answers) > before else None, newest, living)


def _read(run: Run) -> tuple[int | None, list[int | None]]:
    """The attempt that runs, and whom the signal of each request has reached; for a child."""
    events = run.journal().events
    return _living(fold(events)), [event.data.get("heard") for event in events
                                   if event.event == "decision" and event.data.get("row") == "save"]


def _living(state: State) -> int | None:
    attempt = state.attempt
    return attempt.number if state.ended is None and attempt is not None and attempt.ended is None else None


def _newest(place: resumepoints.CheckpointPlace | None) -> Newest | None:
    if place is None:
        return None

    def find() -> list[Any]:
        fresh.see(place.folder)
        whole = (one for one in checkpoints.survey(place.folder, place.format, place.pattern) if one.reason is None)
        found = [[checkpoints.finished_t(one.path), one.path, one.step] for one in whole]
        return max(found, key=lambda one: float(one[0]), default=[])

    answer = run_in_child(find, runs.FOLDER_DEADLINE_S)
    if not answer.is_ok:
        raise RunFolderError(f"{place.folder} cannot be read: {answer.error or 'it does not answer'}")
    if not answer.value:
        return None
    t, path, step = answer.value
    return Newest(float(t), str(path), step)


def _tell(run: Run, outcome: str, sample: Seen, within_s: float) -> str:
    told = {
        "saved": f"a new checkpoint is complete: {_name(sample.newest)}"
                 f"{'' if not sample.is_there or sample.heard else ALONE}",
        "taken": "the training has taken the request. Whether its checkpoint is complete nobody can tell: the run "
                 "has no resume.dir",
        "ended": f"the attempt has ended meanwhile: see safelaunch status {run.dir}",
        "late": f"the training has taken the request, but no new checkpoint is complete after {talk.span(within_s)}. "
                "To wait longer: --within 1h",
        "unheard": f"nobody listens: the request was not taken within {talk.span(within_s)}. {HOW}",
    }
    return told[outcome]


def _name(found: Newest | None) -> str:
    if found is None:
        return "?"
    return f"step {found.step}, {found.path}" if found.step is not None else found.path
