"""Runs that wait for others: what a leader asks before the first attempt, and what it does for those that wait for it.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from safelaunch.decide.facts import after
from safelaunch.decide.facts.after import RunBefore
from safelaunch.errors import ParseError
from safelaunch.launch.settings import AfterRun
from safelaunch.node import fresh
from safelaunch.run import acts
from safelaunch.run.acts import ActOutcome
from safelaunch.run.io import runends, runfolder
from safelaunch.slurm import slurmtext
from safelaunch.slurm import via as ways
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result, said
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.folder import FolderState
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nextjob import NextJob
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.tasks import Step

READ_S = 5.0         # for the journals of all those runs
LOOK_EVERY_S = 15.0


def look_at_others(here: Here, clock: Clock, files: FolderPort, next_job: NextJob) -> Step:
    """Find out how the runs before this one are doing, until it may start or never will."""
    absent: dict[str, float] = {}
    folders = [one.run_dir for one in here.plan.after]

    def read() -> dict[str, Any]:
        fresh.see(*(f"{folder}/journal" for folder in folders))
        return runends.read_ends(folders)

    while True:
        asked_s = clock.now_s   # this host may stand still between a question and its answer
        answer = files.ask(read, READ_S)
        ends = answer.value if answer.is_ok and answer.value is not None else {}
        waits = [one for one in here.plan.after if ends.get(one.run_dir, {}).get("ended") is None]
        jobs: dict[str, list[str] | None] = {}   # by name; None = no clear answer
        if here.job.is_local:
            jobs = {one.job_name: ends.get(one.run_dir, {}).get("local_jobs", []) for one in waits}
        elif waits:
            names = [one.job_name for one in waits]
            jobs = _by_name(names, (yield here.world.command(
                slurm.squeue((f"--name={','.join(names)}",), slurmtext.SQUEUE_FORMAT), here.job.env)))
        for one in waits:   # what nobody can read may have an end
            if jobs[one.job_name] == [] and one.run_dir in ends:
                absent.setdefault(one.job_name, clock.now_s)
            else:
                absent.pop(one.job_name, None)
        before = tuple(_known(one, ends.get(one.run_dir), jobs, absent, asked_s) for one in here.plan.after)
        next_job.note_before(before)
        may = after.judge(before)
        if may.is_free or may.never:
            return
        yield LOOK_EVERY_S


def _known(one: AfterRun, end: dict[str, Any] | None, jobs: dict[str, list[str] | None], absent: dict[str, float],
           asked_s: float) -> RunBefore:
    end = end or {}
    since_s, known = absent.get(one.job_name), jobs.get(one.job_name)
    return RunBefore(
        one.name, one.is_any, end.get("ended"), end.get("why") or "",
        None if known is None else tuple(known),
        None if since_s is None or since_s >= asked_s else asked_s - since_s, end.get("via") == ways.WATCH)


def _by_name(names: list[str], result: Result | None) -> dict[str, list[str] | None]:
    """The jobs of these names; None = no clear answer."""
    known = slurm.jobs_in(result)
    return {name: None if known is None else [job.id for job in known if job.name == name] for name in names}


def tell_followers(here: Here, journal: LeaderJournal, folder: FolderState, say: Say, next_job: str | None) -> Step:
    """Let the jobs that wait for this one's end wait for the run's next job, too; None: no longer for this one. It has
    nothing more to do, and would hang in COMPLETING for minutes on a silent node (measured).

    What is missed here costs a start: that run looks at this one, and goes back into the queue.
    """
    if here.job.is_local or not any(request.name == runfolder.FOLLOWED for request in folder.requests):
        return
    result = yield here.world.command(slurm.squeue(("--me", "--states=PENDING"), slurmtext.WATCH_FORMAT), here.job.env)
    try:
        known = slurmtext.parse_watch(result.stdout) if result is not None and result.is_ok else ()
    except ParseError as error:
        say(f"who waits for this run is not known: {error}")
        return
    for job in known:
        wanted = after.dependency_with(job.dependency, here.job.id, next_job)
        if job.id == next_job or wanted is None:
            continue
        claim = yield from acts.wait_for_claim(partial(journal.claim, "let another run wait"), 1.0)
        yield from acts.perform(journal, "tell_follower", claim, _update(here, say, job.id, wanted), job=job.id)


def _update(here: Here, say: Say, job: str, wanted: str) -> Generator[Command, Result | None, ActOutcome[None]]:
    result = yield here.world.command(slurm.update_job(job, Dependency=wanted), here.job.env)
    if result is not None and not result.is_ok:
        say(f"job {job}, which waits for this run, could not be changed: {said(result)}")
    return ActOutcome(slurm.outcome(result), None)
