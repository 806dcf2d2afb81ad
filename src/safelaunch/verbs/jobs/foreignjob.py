"""A job of Slurm that safelaunch did not submit: is it there, is it mine, and how are its nodes reached."""

from __future__ import annotations

import os
from collections.abc import Mapping

from safelaunch.base.io import owners
from safelaunch.errors import ParseError, UsageError
from safelaunch.slurm import jobstates, nodeset
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.noderound import Target
from safelaunch.slurm.slurmtext import QueuedJob, is_unknown_job, parse_squeue

SQUEUE_DEADLINE_S = 10.0


def find(job: str, verb: str, env: Mapping[str, str]) -> QueuedJob:
    """My own job as squeue shows it; raises UsageError for none and for another user's, SlurmUnreachable, SlurmRefused.
    """
    result = slurm.run(slurm.squeue_job(job), env, SQUEUE_DEADLINE_S)
    if not result.is_ok and is_unknown_job(result.stderr):
        raise UsageError(f"Slurm knows no job {job}", hint="squeue --me")
    try:
        jobs = parse_squeue(result.check().stdout)
    except ParseError as error:
        raise UsageError(f"squeue's answer on job {job} is not understood: {error.message}") from error
    if not jobs:
        raise UsageError(f"Slurm knows no job {job}", hint="squeue --me")
    found = next((one for one in jobs if one.state in jobstates.ON_NODES), jobs[0])
    if found.user != owners.name_of(os.getuid()):
        raise UsageError(f"job {job} belongs to {found.user}, and Slurm lets nobody else into it",
                         hint=f"ask {found.user} to type: safelaunch {verb} {job}")
    return found


def target_of(job: QueuedJob, env: Mapping[str, str]) -> Target:
    """Where its ranks are; raises UsageError for a job that is not running."""
    if job.state not in jobstates.ON_NODES:
        raise UsageError(f"job {job.id} is not running: it is {job.state}")
    return Target(job.id, nodeset.expand(job.nodelist), has_gpus=has_gpus(job.id, env))


def has_gpus(job: str, env: Mapping[str, str]) -> bool:
    """Whether a job has GPUs, as far as squeue says."""
    return "gpu" in slurm.run(slurm.squeue_gpus(job), env, SQUEUE_DEADLINE_S).stdout
