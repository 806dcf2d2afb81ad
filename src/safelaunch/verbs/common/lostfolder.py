"""Runs whose folder is gone, as far as the list of runs and Slurm know them: the journal and the kill switch went with
it. The name of a job holds its run's id, so that no other job is taken for one of the run's.
"""

from __future__ import annotations

import os

from safelaunch.base.io import owners
from safelaunch.base.io.probe import run_in_child
from safelaunch.base.model import DONE, UNREACHABLE
from safelaunch.errors import RunFolderError
from safelaunch.run.io import registry, runpath
from safelaunch.run.io.registry import RegisteredRun
from safelaunch.slurm import jobstates
from safelaunch.slurm.io import slurm
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.verbs.common.talk import Say

LIST_S, SQUEUE_S = 10.0, 4.0   # a person waits


class LostFolderError(RunFolderError):
    """The folder of a run that the list of runs knows is gone."""

    def __init__(self, entry: RegisteredRun) -> None:
        self.entry, self.word = entry, _ask(entry)
        message, hint = _tell(entry, self.word)
        super().__init__(message, hint=hint)


def find(which: str) -> RegisteredRun | None:
    """The newest run of that name, id, first job or folder, where its folder is gone, or what was in it."""
    path = os.path.abspath(which)   # noqa: PTH100 - a text, of a folder that is not there
    meant = (entry for entry in registry.parse(run_in_child(registry.raw, LIST_S).value or "")
             if which in (entry.name, entry.run_id, entry.job) or str(entry.dir) == path)
    newest = next(meant, None)
    if newest is None:
        return None
    is_there = run_in_child(lambda: runpath.is_run_folder(newest.dir), LIST_S).value
    return newest if is_there is False else None


def stop(lost: LostFolderError, say: Say) -> int:
    """Cancel what Slurm still knows of the run; the exit code."""
    entry, jobs = lost.entry, lost.word.jobs
    say(lost.message)
    if jobs is None:
        return UNREACHABLE
    if not jobs:
        return DONE
    me = owners.name_of(os.getuid())
    result = slurm.run(slurm.scancel_named(me, _job_name(entry)), slurm.outside_job(os.environ))
    result.check()
    say(f"cancelled: {', '.join(job.id for job in jobs)} (scancel: its kill switch went with its folder)")
    return DONE


def _ask(entry: RegisteredRun) -> SchedulerAnswer:
    result = slurm.run(slurm.squeue_by_name(_job_name(entry)), slurm.outside_job(os.environ), SQUEUE_S)
    jobs = slurm.jobs_in(result)
    return SchedulerAnswer(None if jobs is None else tuple(jobs), result.stderr.strip() or "no clear answer")


def _job_name(entry: RegisteredRun) -> str:
    return f"{entry.name}.{entry.run_id}"   # run.plan.Plan.job_name


def _tell(entry: RegisteredRun, slurm_answer: SchedulerAnswer) -> tuple[str, str | None]:
    """The message, and the way out."""
    is_emptied = run_in_child(lambda: os.path.lexists(entry.dir), LIST_S).value
    how = "has been emptied: its run.json is gone" if is_emptied else "is gone"
    gone = f"the run folder {entry.dir} of {entry.name} {how}"
    if slurm_answer.jobs is None and not entry.cluster:
        return f"{gone}; it was a local run, whose first process was {entry.job}", None
    if slurm_answer.jobs is None:
        return (f"{gone}; whether its job {entry.job} still runs Slurm does not say ({slurm_answer.trouble})",
                f"ask again, or: squeue --me --name={_job_name(entry)}")
    if not slurm_answer.jobs:
        return f"{gone}, and Slurm knows no job of it any more", None
    running = [job.id for job in slurm_answer.jobs if job.state != jobstates.PENDING]
    waiting = [job.id for job in slurm_answer.jobs if job.id not in running]
    told = [*(f"job {id} still runs, ends with its training, and is not restarted" for id in running),
            *(f"job {id} waits in the queue, and cannot start without the folder" for id in waiting)]
    return (f"{gone}; {'; '.join(told)}",
            f"to end that now: safelaunch stop {entry.name}   (or: scancel {' '.join((*running, *waiting))})")
