"""Why Slurm ends this job: which source is asked next, and what a TERM means when none of them tells."""

from __future__ import annotations

from enum import Enum

from safelaunch.base.endings import JobEnd

EVIDENCE_S = 3.0   # slurmstepd writes its line before it signals; a slow folder may show it late


class Explain(Enum):
    """The next step towards an explanation of a TERM."""

    WAIT = "slurmstepd's line may still come"
    LINE = "slurmstepd's line tells"
    ASK_SCONTROL = "its line cannot be read: ask scontrol why the job ends"
    ASK_SQUEUE = "there is no line: ask squeue whether the job ends at all"


def explain(line: str | None, waited_s: float) -> Explain:
    """What to do after a TERM; `line`: slurmstepd's reason (JobEnd), None = it has written none."""
    if line is None:
        return Explain.ASK_SQUEUE if waited_s > EVIDENCE_S else Explain.WAIT
    return Explain.ASK_SCONTROL if line == JobEnd.UNKNOWN else Explain.LINE


def ending_without_line(*, is_running: bool) -> JobEnd | None:
    """What a TERM without a line means; None = nothing: it came to this process alone, and Slurm runs the job on."""
    return None if is_running else JobEnd.UNKNOWN


def ending_by_scontrol(reason: str | None) -> str:
    """Why the job ends, from scontrol's answer where slurmstepd's line cannot be read."""
    return reason or JobEnd.UNKNOWN


def has_missed_term(*, is_ending: bool, has_term: bool, ending: str | None, ends_itself: bool) -> bool:
    """Whether Slurm ends this job, and its TERM has not reached this node: a node that is cut off gets none.

    A job that this supervisor cancels itself needs no explanation (`ends_itself`).
    """
    return is_ending and not has_term and ending is None and not ends_itself
