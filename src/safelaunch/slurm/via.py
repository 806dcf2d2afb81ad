"""How a run's next job is made: `restart.via`, and what `auto` takes where a site forbids the best way.

successor: queued at this job's start, so that no end of this job loses the run; resubmit: submitted when this job ends;
requeue: this job itself goes back into the queue; watch: `safelaunch watch` on another host queues it.
"""

from __future__ import annotations

from typing import NamedTuple

SUCCESSOR, RESUBMIT, REQUEUE, WATCH = "successor", "resubmit", "requeue", "watch"


class Way(NamedTuple):
    """One way; supervisor/ends/handover.py has a function for each."""

    sentence: str
    is_at_end: bool = False   # the leader itself makes the next job, when its own ends: none waits in the queue


WAYS: dict[str, Way] = {
    SUCCESSOR: Way("the next job waits in the queue behind this one"),
    RESUBMIT: Way("nothing is queued behind this job: the next one is submitted when this one ends", is_at_end=True),
    REQUEUE: Way("nothing is queued behind this job: Slurm requeues this one when it ends", is_at_end=True),
    WATCH: Way(
        "no job can be queued from here: `safelaunch watch` on a login node queues the next one, where one runs"),
}
CHOICES = ("auto", *WAYS)   # of restart.via
HERE = "shell"   # instead of a cluster: the run lives in the job of a person's shell (`submit --here`)


def has_next_job(cluster: str) -> bool:
    """Whether another job can follow: not where a run has this machine alone, or the job of a person's shell."""
    return cluster not in ("local", HERE)


def sentence(name: str) -> str:
    """What a way means for the next job; the name itself, of a later version's."""
    way = WAYS.get(name)
    return name if way is None else way.sentence


def is_at_end(name: str) -> bool:
    """Whether no next job can be seen before this one ends, as its leader makes it then."""
    way = WAYS.get(name)
    return way is not None and way.is_at_end


# Slurm's own message is "Job dependency problem" (slurm_errno.c); a site's job_submit.lua has its own.
_DEPENDENCY = "dependen"
NOT_FOUND = 127    # slurm.io.slurm.Command's, as a shell has it


def is_dependency_refused(said: str) -> bool:
    """Whether sbatch says that it was the dependency that it refused."""
    return _DEPENDENCY in said.lower()
