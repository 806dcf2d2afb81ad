"""Another time limit or partition for a run's later jobs: checked by Slurm, written down, told to jobs that wait."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from safelaunch.base.io import owners
from safelaunch.base.model import DONE, REFUSED, UNREACHABLE
from safelaunch.errors import UsageError
from safelaunch.run import acts
from safelaunch.run.acts import ActOutcome
from safelaunch.run.io import runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.script import laterjobs as later
from safelaunch.script.io import laterjobs
from safelaunch.slurm import via
from safelaunch.slurm.io import slurm
from safelaunch.verbs.common import controls, runs


class ChangeAnswer(NamedTuple):
    """The changes that hold now, what became of the jobs that wait (why "": changed), and one sentence."""

    changes: dict[str, str]
    jobs: tuple[tuple[str, str], ...]
    trouble: str
    sentence: str

    @property
    def exit_code(self) -> int:
        """A job that stays as it is makes a refusal (3), no answer is 4."""
        return UNREACHABLE if self.trouble else REFUSED if any(why for _, why in self.jobs) else DONE


def change(run: Run, words: tuple[str, ...]) -> ChangeAnswer:
    """Let the run's later jobs have other options. Raises UsageError, SlurmError and RunFolderError."""
    state = run.state()
    if state.ended is not None:
        raise UsageError(f"there is no later job: {runs.describe_end(state.ended)}")
    if not via.has_next_job(run.plan.cluster):
        raise UsageError("this run has no later job: it is not in Slurm's queue")
    if not controls.is_mine(run):
        raise UsageError(f"only {runs.owner_of(run.dir)} can change its jobs")
    before = runs.ask(lambda: laterjobs.read(run.dir), str(run.dir))
    changes = later.parse(words, before)
    if not words:
        return ChangeAnswer(changes, (), "", later.tell(changes) or "nothing is changed for later jobs")
    _let_slurm_check(run, changes)
    laterjobs.write(run.dir, changes)
    writer = controls.login_actor(run).writer
    told = later.tell(changes) or "as they were submitted"
    writer.write(writer.event("decision", row="change", action="change",
                              why=f"{owners.name_of(os.getuid())} changed the run's later jobs: {told}"))
    word = runs.ask_scheduler(run)
    fields = later.fields(changes, before, dict(run.plan.sbatch))
    jobs = tuple((job.id, _tell_job(run, job.id, fields)) for job in word.pending) if fields else ()
    parts = [f"later jobs of {run.plan.name}: {told}"]
    parts += [f"job {id} in the queue {f'stays as it is: {why}' if why else 'is changed, too'}" for id, why in jobs]
    if word.jobs is None:
        parts.append(f"Slurm does not answer ({word.trouble}): whether a job waits is unknown; repeat this")
    parts.append("a job that runs keeps its own")
    return ChangeAnswer(changes, jobs, "" if word.jobs is not None else word.trouble, "; ".join(parts))


def _let_slurm_check(run: Run, changes: dict[str, str]) -> None:
    """Raise SlurmRefused with Slurm's words where it would take no such job."""
    env = slurm.outside_job(runs.ask(lambda: runfolder.read_env(run.dir), str(run.dir)))
    argv = slurm.sbatch(str(run.dir / "job.sbatch"), ["--test-only", *later.options(changes)])
    slurm.run(argv, env, cwd=str(run.meta.get("cwd", Path.cwd()))).check()


def _tell_job(run: Run, job: str, fields: dict[str, str]) -> str:
    """Why a job that waits could not be changed; "" = it is."""
    def do() -> ActOutcome[str]:
        result = slurm.run(slurm.update_job(job, **fields), slurm.outside_job(os.environ))
        why = "" if result.is_ok else slurm.said(result)
        return ActOutcome(slurm.outcome(result), why, {"why": why} if why else {})

    actor = controls.login_actor(run)
    return acts.perform_now(actor, "change_jobs", actor.claim(f"change job {job}"), do, jobs=[job])
