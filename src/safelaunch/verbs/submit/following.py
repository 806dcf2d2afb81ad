"""`submit --after RUN`: the runs that a new run waits for, and their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safelaunch.base.endings import RunEnd
from safelaunch.errors import UsageError
from safelaunch.launch.settings import AfterRun, Settings
from safelaunch.run.io.runfolder import FOLLOWED, Run
from safelaunch.slurm.slurmtext import SQUEUE_FORMAT
from safelaunch.verbs.common import controls, runs
from safelaunch.verbs.submit.submitting import Waits


def waits_for(ok: Sequence[str], any_end: Sequence[str], settings: Settings) -> Waits:
    """What a run of this config waits for, by the names of runs and sweeps: those of `ok` must end well. Raises
    UsageError where one of these has ended otherwise, or nobody could say when it ends.
    """
    found: dict[str, AfterRun] = {}
    for names, is_any in ((any_end, True), (ok, False)):   # the stricter word counts
        for run in (run for name in names for run in _named(name)):
            if _goes_on(run, is_any, settings):
                found[str(run.dir)] = AfterRun(run.plan.name, str(run.dir), run.plan.job_name, is_any)
    after = tuple(found.values())
    for one in after:
        controls.touch(Path(one.run_dir) / "control" / FOLLOWED)
    return Waits(after, _jobs_of(after) if settings.cluster != "local" else ())


def _named(name: str) -> list[Run]:
    points = runs.find_sweep(name)
    return [runs.load(str(entry.dir)) for entry in points] if points else [runs.load(name)]


def _goes_on(run: Run, is_any: bool, settings: Settings) -> bool:
    """Whether there is something to wait for."""
    if not controls.is_mine(run):   # Slurm may hide other people's jobs: nobody could say when theirs have ended
        raise UsageError(f"{run.plan.name} is {runs.owner_of(run.dir)}'s run, and a run waits for your own ones only")
    runs.check_here(run)
    if (run.plan.cluster == "local") != (settings.cluster == "local"):
        raise UsageError(f"{run.plan.name} runs {'on this machine' if run.plan.cluster == 'local' else 'under Slurm'}, "
                         "and this run would not: neither can wait for the other")
    ended = run.state().ended
    if ended is not None and ended.how != RunEnd.COMPLETED and not is_any:
        raise UsageError(f"{run.plan.name} has ended: {runs.describe_end(ended)}; nothing was submitted",
                         hint=f"--after-any {run.plan.name} takes any end")
    return ended is None


def _jobs_of(after: Sequence[AfterRun]) -> tuple[str, ...]:
    """Their unfinished jobs, asked for at once."""
    if not after:
        return ()
    names = {one.job_name: one.name for one in after}
    word = runs.ask_squeue(("--me", f"--name={','.join(names)}"), SQUEUE_FORMAT)
    if word.jobs is None:
        raise UsageError(f"Slurm does not say which jobs to wait for ({word.trouble}); nothing was submitted")
    if missing := set(names) - {job.name for job in word.jobs}:
        name = names[min(missing)]
        raise UsageError(f"Slurm knows no job of {name}, and {name} has not ended; nothing was submitted",
                         hint=f"see: safelaunch status {name}")
    return tuple(job.id for job in word.jobs if job.name in names)
