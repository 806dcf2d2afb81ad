"""The successor: the next job of the run, queued while this one runs, so that no end of this one loses the run.

`afterany` keeps it back while this job lives, `singleton` under a unique name makes Slurm itself refuse two running
jobs of one run. The environment is the one saved at the first submit: inside a job, sbatch would take the job's own
SLURM_* for options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from safelaunch.adapters import slurm
from safelaunch.adapters.job import Job
from safelaunch.adapters.slurm import Command, Result, Start
from safelaunch.core import nodeset, slurmtext
from safelaunch.core.plan import Plan
from safelaunch.errors import ParseError


class Successor:
    """The commands around the next job; who runs them waits for them."""

    def __init__(self, plan: Plan, job: Job, run_dir: Path, env: Mapping[str, str], start: Start) -> None:
        self._plan, self._job, self._run_dir, self._start = plan, job, run_dir, start
        self._env = slurm.outside_job(env)

    def submit(self, exclude: tuple[str, ...]) -> Command:
        """sbatch of the next job."""
        options = [f"--dependency=afterany:{self._job.id},singleton"]
        if exclude:
            options.append(f"--exclude={self._all_excluded(exclude)}")
        return self._start(slurm.sbatch(str(self._run_dir / "job.sbatch"), options), self._env, cwd=self._job.cwd)

    def look(self) -> Command:
        """squeue of the run's unfinished jobs."""
        return self._start(slurm.squeue_by_name(self._plan.job_name), self._env)

    def job_from(self, result: Result) -> str | None:
        """The successor's id out of sbatch's or squeue's answer; None = there is none, or no clear answer."""
        if not result.is_ok:
            return None
        try:
            if result.argv[0] == "sbatch":
                return slurmtext.parse_submitted(result.stdout)
            jobs = slurmtext.parse_squeue(result.stdout)
        except ParseError:
            return None
        # Pending ones only: the job before this one can hang in COMPLETING on a silent node for minutes.
        return next((job.id for job in jobs if job.name == self._plan.job_name and job.id != self._job.id
                     and job.state == "PENDING"), None)

    def look_at(self, job: str) -> Command:
        """squeue of one job, in whatever state Slurm still remembers it (MinJobAge, 300 s)."""
        return self._start(slurm.squeue_job(job), self._env)

    def state_of(self, result: Result, job: str) -> str | None:
        """Slurm's word for the state of `job`; "" = Slurm says that it does not know it, None = no clear answer."""
        if not result.is_ok:
            return "" if "Invalid job id" in result.stderr else None
        try:
            jobs = slurmtext.parse_squeue(result.stdout)
        except ParseError:
            return None
        return next((known.state for known in jobs if known.id == job), "")

    def is_ours(self, result: Result, job: str) -> bool:
        """Whether squeue shows `job` as an unfinished job of this run."""
        try:
            jobs = slurmtext.parse_squeue(result.stdout)
        except ParseError:
            return False
        return any(known.id == job and known.name == self._plan.job_name for known in jobs)

    def prepare(self, job: str | None, exclude: tuple[str, ...], drop_afterany: bool) -> Iterator[Command]:
        """The changes to the pending successor before this job ends, in one call.

        `drop_afterany`: this job will hang in COMPLETING on a silent node; singleton counts that as ended.
        """
        changes = {"ExcNodeList": self._all_excluded(exclude)} if exclude else {}
        if drop_afterany:
            changes["Dependency"] = "singleton"
        if job is not None and changes:
            yield self._start(slurm.update_job(job, **changes), self._env)

    def cancel(self, job: str) -> Command:
        """scancel, once `is_ours` has said so."""
        return self._start(slurm.scancel(job), self._env)

    def _all_excluded(self, exclude: tuple[str, ...]) -> str:
        """The user's own exclusions stay: an update replaces the whole list."""
        own = dict(self._plan.sbatch).get("exclude")
        return nodeset.fold([*exclude, *(nodeset.expand(own) if own else ())])
