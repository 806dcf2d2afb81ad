"""The newest complete checkpoint at this moment, found by the verb itself: it costs the supervisor nothing."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from safelaunch.base.io.probe import run_in_child
from safelaunch.run.fold.state import State
from safelaunch.run.io.runfolder import Run

DEADLINE_S = 2.0   # a person waits; a folder of some hundred checkpoints takes 0.1 s
MOST_SKIPPED = 5


def look(run: Run, state: State) -> dict[str, Any] | None:
    """{dir, path, step, format, t, skipped, trouble}; `path` None = none is complete, or unknown for the reason in
    `trouble`. None: the run has no resume.dir.
    """
    if run.plan.resume.dir is None:
        return None
    from safelaunch.verbs.common import resumepoints  # all formats: a run without checkpoints needs none

    place = resumepoints.of_run(run, state)
    if place is None:
        return None
    folder, most_whole = place.folder, 1 + place.refused
    found: dict[str, Any] = {"dir": folder, "path": None, "step": None, "format": None, "t": None, "skipped": [],
                             "trouble": ""}
    answer = run_in_child(lambda: resumepoints.survey(place, most_whole), DEADLINE_S)
    if answer.late:
        return {**found, "trouble": f"{folder} was not looked through within {DEADLINE_S:.0f} s"}
    if answer.value is None:
        return {**found, "trouble": f"{folder} cannot be read: {answer.error}"}
    seen = resumepoints.as_seen(place, answer.value)
    newer = takewhile(lambda one: one.reason is not None, seen.judged)
    found["skipped"] = [{"path": one.path, "reason": one.reason} for one in newer][:MOST_SKIPPED]
    best = seen.next
    return found if best is None else found | {"path": best.path, "step": best.step, "format": best.format,
                                               "t": best.changed_s}
