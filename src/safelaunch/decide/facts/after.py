"""Whether a run that waits for others (--after, max_parallel) may start its first attempt.

Its first job waits in the queue for their jobs, but a run outlives its jobs. So the start looks at the runs themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from safelaunch.base.endings import RunEnd

ABSENT_S = 60.0       # so long no job of a run without an end may be known before it counts as lost
WATCHED_S = 1800.0    # ... where a watch, which may run from cron, makes its next job


class RunBefore(NamedTuple):
    """What is known of a run that this one waits for. `jobs`: its unfinished ones; None = no clear answer."""

    name: str
    is_any: bool                            # it may end in any way
    ended: str | None = None                # a word of RunEnd
    why: str = ""
    jobs: tuple[str, ...] | None = None
    absent_s: float | None = None           # since the first of at least two answers in a row that it has no job
    is_watched: bool = False                # a watch makes its next job


class May(NamedTuple):
    """May it start? `never`: why not, and `behind`: after which jobs to ask again; both empty: yes, or ask again soon.
    """

    is_free: bool
    behind: tuple[str, ...] = ()
    never: str = ""
    why: str = ""


def judge(before: Sequence[RunBefore]) -> May:
    """Whether to start: one that has not ended well is the end, then the others must all have ended."""
    told = [(one, _judge_one(one)) for one in before]
    if never := next((may for _, may in told if may.never), None):
        return never
    waits = [one for one, may in told if not may.is_free]
    if not waits:
        return May(True)
    behind = tuple(job for one in waits for job in one.jobs or ())
    more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
    return May(False, behind, why=f"it waits for the end of {waits[0].name}{more}")


def dependency_with(text: str, job: str, more: str | None) -> str | None:
    """The dependency of a job that waits for `job`, as squeue prints it, with one more job to wait for. Where there is
    none, it is without `job`. None = it does not wait for it, or takes one of several for enough.
    """
    parts = [part.split(":") for part in re.sub(r"\([a-z ]*\)", "", text).split(",")]
    if "?" in text or not any(kind == "afterany" and job in jobs for kind, *jobs in parts):
        return None
    if more is not None:
        parts.append(["afterany", more])
    else:
        parts = [[kind, *(one for one in jobs if kind != "afterany" or one != job)] for kind, *jobs in parts]
    return ",".join(":".join(part) for part in parts if part != ["afterany"])


def _judge_one(one: RunBefore) -> May:
    if one.ended is not None:
        if one.is_any or one.ended == RunEnd.COMPLETED:
            return May(True)
        return May(False, never=f"{one.name}, for whose good end it waits, has ended: {one.ended} ({one.why})")
    if one.jobs or one.absent_s is None or one.absent_s < (WATCHED_S if one.is_watched else ABSENT_S):
        return May(False)
    if one.is_any:
        return May(True)   # what has no job does not train
    return May(False, never=f"{one.name}, for whose good end it waits, has no job left, and nobody knows how it ended "
                            f"(see: safelaunch status {one.name})")
