"""Holding a run's queued jobs, and releasing them: `scontrol uhold`, `scontrol release`.

`uhold` and not `hold`: a job that root holds by `hold` is JobHeldAdmin, which the owner may not release (Slurm 22.05,
measured; scontrol(1)). By squeue's reason a held job is told also where it has a dependency. A job that starts in the
very moment of the hold runs on with the reason JobHeldUser (both measured).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from safelaunch.run import acts
from safelaunch.run.acts import ActOutcome
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import jobstates
from safelaunch.slurm.io import slurm
from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.verbs.common import controls, runs

HELD, HELD_BY_ADMIN = "JobHeldUser", "JobHeldAdmin"


@dataclass(frozen=True)
class Turned:
    """The result for the run's queued jobs; `trouble` = Slurm gave no clear answer."""

    done: tuple[str, ...] = ()                    # held or released now
    before: tuple[str, ...] = ()                  # held already
    left: tuple[tuple[str, str], ...] = ()        # job, why it was left as it is
    refused: str = ""                             # what Slurm said no with
    trouble: str = ""
    knows_none: bool = False                      # Slurm has no unfinished job of this run


def hold_jobs(run: Run) -> Turned:
    """Hold the run's jobs that have not started."""
    word = runs.ask_scheduler(run)
    if word.jobs is None:
        return Turned(trouble=word.trouble)
    before = tuple(job.id for job in word.pending if _is_held(job))
    wanted = tuple(job.id for job in word.pending if not _is_held(job))
    if wanted and not controls.is_mine(run):
        return Turned(before=before, left=_not_mine(run, wanted))
    if not wanted:
        return Turned(before=before, knows_none=not word.jobs)
    said, after = _order(run, slurm.hold(*wanted), "hold_jobs", wanted,
                         lambda job: _is_held(job) or job.state != jobstates.PENDING)
    if after.jobs is None:
        return Turned(before=before, trouble=after.trouble)
    held = tuple(job.id for job in after.jobs if job.id in wanted and job.state == jobstates.PENDING and _is_held(job))
    started = tuple((job.id, "it has just started: its supervisor sees the hold") for job in after.jobs
                    if job.id in wanted and job.state != jobstates.PENDING)
    if held and not _is_on_hold(run):   # it was resumed before there was a held job for `resume` to find
        again = release_jobs(run)
        resumed = tuple((job, "the run has been resumed meanwhile") for job in held)
        return Turned(before=before, left=(*started, *resumed), refused=again.refused, trouble=again.trouble)
    open_still = any(job.id in wanted and job.state == jobstates.PENDING and not _is_held(job) for job in after.jobs)
    return Turned(held, before, started, refused=said if open_still else "")


def release_jobs(run: Run) -> Turned:
    """Release the run's jobs that a user holds; those of an administrator are his."""
    word = runs.ask_scheduler(run)
    if word.jobs == ():   # one empty answer is not "no job": the user would queue another
        word = runs.ask_scheduler(run)
    if word.jobs is None:
        return Turned(trouble=word.trouble)
    wanted = tuple(job.id for job in word.jobs if job.reason == HELD)
    left = tuple((job.id, "an administrator holds it") for job in word.jobs if job.reason == HELD_BY_ADMIN)
    if wanted and not controls.is_mine(run):
        return Turned(left=(*left, *_not_mine(run, wanted)))
    if not wanted:
        return Turned(left=left, knows_none=not word.jobs)
    said, after = _order(run, slurm.release(*wanted), "release_jobs", wanted, lambda job: job.reason != HELD)
    if after.jobs is None:
        return Turned(left=left, trouble=after.trouble)
    held_still = {job.id for job in after.jobs if job.reason == HELD}
    return Turned(tuple(job for job in wanted if job not in held_still), left=left,
                  refused=said if held_still & set(wanted) else "")


def _order(
    run: Run, argv: tuple[str, ...], act: str, jobs: tuple[str, ...], is_done: Callable[[QueuedJob], bool]
) -> tuple[str, SchedulerAnswer]:
    """scontrol's answer, and squeue's afterwards. Only squeue's counts: an answer can be lost."""
    def do() -> ActOutcome[tuple[str, SchedulerAnswer]]:
        result = slurm.run(argv, slurm.outside_job(os.environ))
        after = runs.ask_scheduler(run)
        done = None if after.jobs is None else all(is_done(job) for job in after.jobs if job.id in jobs)
        said = (result.stderr or result.stdout).strip()[:300] or f"{' '.join(argv[:2])}: no word why"
        return ActOutcome(done, (said, after), {} if done else {"why": said})

    actor = controls.login_actor(run)
    claim = actor.claim(f"{act.replace('_', ' ')} {', '.join(jobs)}")
    return acts.perform_now(actor, act, claim, do, jobs=list(jobs))


def _is_on_hold(run: Run) -> bool:
    return controls.look(run.dir / "control" / "hold") is not None


def _is_held(job: QueuedJob) -> bool:
    return job.reason in (HELD, HELD_BY_ADMIN)


def _not_mine(run: Run, jobs: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((job, f"only {runs.owner_of(run.dir)} can change it") for job in jobs)
