"""How attempts, jobs and runs end, and why: the words of the journal and `--json`, and the sentences for people. The
members are strings, so that a word of the journal equals its member; a journal of a later version may have others.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class _Word(str, Enum):
    __str__ = str.__str__   # Python 3.11 and 3.12 differ on what an f-string makes of such a member


class AttemptEnd(_Word):
    """How an attempt ended."""

    COMPLETED = "completed"       # exit code 0, and nobody had told it to end
    LINKED = "linked"             # the same, and its script has submitted itself: the run goes on
    FAILED = "failed"             # by itself
    LOST = "lost"                 # with a node of it
    INTERRUPTED = "interrupted"   # with its job, or for want of a supervisor
    STOPPED = "stopped"           # by a person
    CONVERTED = "converted"       # before_resize has converted a checkpoint for another number of nodes,
    UNCONVERTED = "unconverted"   # or has failed, which costs no budget


GOOD_ENDS = (AttemptEnd.COMPLETED, AttemptEnd.LINKED)   # there is no cause to look for
BAD_ENDS = (AttemptEnd.FAILED, AttemptEnd.LOST)   # something is to be found out, and a restart costs budget


class RunEnd(_Word):
    """How a run ended; each is an event of the journal, too."""

    COMPLETED = "completed"
    GAVE_UP = "gave_up"
    STOPPED = "stopped"           # by a person


RUN_ENDED: dict[str, str] = {
    RunEnd.COMPLETED: "has completed", RunEnd.GAVE_UP: "has given up", RunEnd.STOPPED: "was stopped",
}


class JobEnd(_Word):
    """Why Slurm ends a job or a step of it."""

    CANCELLED = "cancelled"       # by a person
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"
    NODE_FAILURE = "node_failure"
    ORPHANED = "orphaned"         # a node guard cancelled it
    UNKNOWN = "unknown"


class JobEndRow(NamedTuple):
    """What follows from one reason: the sentence on the job, and the verdict on its attempt."""

    told: str
    category: str
    confidence: float
    summary: str


JOB_ENDS: dict[str, JobEndRow] = {
    JobEnd.CANCELLED: JobEndRow(
        "somebody cancelled it", "cancelled", 1.0, "the job was cancelled by a person (scancel)"),
    JobEnd.TIME_LIMIT: JobEndRow("its time limit has come", "time_limit", 1.0, "the job's time limit has come"),
    JobEnd.PREEMPTED: JobEndRow("it is preempted", "preempted", 1.0, "a more important job took the nodes"),
    JobEnd.REQUEUED: JobEndRow(
        "it is put back into the queue", "preempted", 0.8, "the job was put back into the queue"),
    JobEnd.NODE_FAILURE: JobEndRow("a node failed", "node_failure", 0.9, "a node failed, and Slurm ended the job"),
    JobEnd.ORPHANED: JobEndRow(
        "it had lost its supervisors", "unknown", 0.3, "nobody led the job any more, and a node guard cancelled it"),
    JobEnd.UNKNOWN: JobEndRow(
        "Slurm has not said why", "unknown", 0.3, "Slurm ended the job, for an unknown reason"),
}

# Why an attempt is ended, for people; the keys are the rows of decide that end one.
ENDED_BY = {
    "task_failed": "a task of it has failed", "node_lost": "a node of it is lost", "hung": "it hangs",
    "step_stuck": "its job step cannot start",
    "limit_near": "the job's time limit is near", "ending": "Slurm is ending the job", "srun_gone": "srun has ended",
    "took_over": "its supervisor was silent, and another one has taken over",
    "unconfirmed": "its supervisor could not know whether another one leads",
    "lost_progress": "it starts below its checkpoint", "nan": "its loss is no finite number",
    "grace_over": "it was asked to end, and its time is up",
    "hook_late": "before_resize has taken too long",
    "slow_restart": "its nodes are to be measured, because steps take longer",
    "restart": "a person wants the next attempt now",
}
ENDED_WHOLE = ("hung", "step_stuck", "lost_progress", "nan")   # rows that end all tasks: which was first says nothing
BY_PERSON = ("kill", "kill_now", "checkpoint")   # rows that end an attempt on a person's request
# A row that asks an attempt to end, and the rows that may ask anew: they want it sooner, or for good.
GIVES_WAY = {"checkpoint": ("kill",), "slow_restart": ("kill", "checkpoint", "restart", "limit_near"),
             "restart": ("kill", "checkpoint", "limit_near")}


def tell_ending(ending: str | None) -> str:
    """Why a job ends, in words; None = only its time limit is near."""
    if ending is None:
        return "its time limit is near"
    row = JOB_ENDS.get(ending)
    return row.told if row is not None else ending.replace("_", " ")
