"""The newest complete checkpoint at this moment, found by the verb itself: it costs the supervisor nothing."""

from __future__ import annotations

from itertools import takewhile

from safelaunch.base.io.probe import run_in_child
from safelaunch.run.fold.state import State
from safelaunch.run.io.runfolder import Run
from safelaunch.status.overview import NewestCheckpoint, SkippedCheckpoint

DEADLINE_S = 2.0   # a person waits; a folder of some hundred checkpoints takes 0.1 s
MOST_SKIPPED = 5


def look(run: Run, state: State) -> NewestCheckpoint | None:
    """What is there, without its age; None: the run has no resume.dir."""
    if run.plan.resume.dir is None:
        return None
    from safelaunch.verbs.common import resumepoints  # all formats: a run without checkpoints needs none

    place = resumepoints.of_run(run, state)
    if place is None:
        return None
    folder, most_whole = place.folder, 1 + place.refused
    answer = run_in_child(lambda: resumepoints.survey(place, most_whole), DEADLINE_S)
    if answer.late:
        return NewestCheckpoint(folder, trouble=f"{folder} was not looked through within {DEADLINE_S:.0f} s")
    if answer.value is None:
        return NewestCheckpoint(folder, trouble=f"{folder} cannot be read: {answer.error}")
    seen = resumepoints.as_seen(place, answer.value)
    newer = takewhile(lambda one: one.reason is not None, seen.judged)
    found = NewestCheckpoint(folder, skipped=tuple(
        SkippedCheckpoint(one.path, one.reason or "") for one in newer)[:MOST_SKIPPED])
    best = seen.next
    return found if best is None else found._replace(path=best.path, step=best.step, format=best.format,
                                                     t=best.changed_s)
