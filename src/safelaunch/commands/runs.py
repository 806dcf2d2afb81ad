"""Which run is meant by RUN, and what the journal and the scheduler say of it.

RUN is a path, a name, a run id, the job id of any of its jobs, or a unique prefix of name or id; without it the newest
run in this folder. The folder may be on a filesystem that has frozen, so it is first looked at by a disposable child.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from safelaunch.adapters import clustername, journal, local, registry, runfolder, slurm
from safelaunch.adapters.runfolder import Run
from safelaunch.core.journal import Journal
from safelaunch.core.slurmtext import SQUEUE_FORMAT, QueuedJob, parse_squeue
from safelaunch.core.state import Ended
from safelaunch.errors import ParseError, RunFolderError, UsageError
from safelaunch.node.probe import run_in_child

T = TypeVar("T")
_Command = TypeVar("_Command", bound=Callable[..., object])

FOLDER_DEADLINE_S = 10.0   # a sick parallel filesystem answers in seconds; one that needs longer is frozen
SQUEUE_DEADLINE_S = 4.0    # a person waits; what the journal says is shown in any case
SHOWN_CANDIDATES = 8


@dataclass(frozen=True)
class Word:
    """What the scheduler says of a run's unfinished jobs; `jobs` None = no clear answer, and `trouble` says why."""

    jobs: tuple[QueuedJob, ...] | None
    trouble: str = ""

    def job(self, id: str | None) -> QueuedJob | None:
        """The job of that id, if it is known as unfinished."""
        return next((job for job in self.jobs or () if job.id == id), None)

    @property
    def pending(self) -> tuple[QueuedJob, ...]:
        """Those that have not started."""
        return tuple(job for job in self.jobs or () if job.state == "PENDING")


class JournalWatch:
    """A journal that is read again only when a file of it has changed."""

    def __init__(self, run_dir: Path) -> None:
        self._dir = run_dir
        self._seen: dict[str, int] | None = None

    def poll(self) -> Journal | None:
        """The journal; None = nothing has changed since the last call."""
        sizes = {path.name: path.stat().st_size for path in (self._dir / "journal").glob("*.jsonl")}
        if sizes == self._seen:
            return None
        self._seen = sizes   # taken before the reading: what is appended meanwhile is seen by the next call
        return journal.read(self._dir)


def run_argument(function: _Command) -> _Command:
    """The same function with the argument `which`."""
    return click.argument("which", metavar="[RUN]", required=False)(function)


def load(which: str | None) -> Run:
    """The run that is meant; raises UsageError when none or several are, RunFolderError when it cannot be read."""
    run = runfolder.load(find_folder(which))
    if not os.access(run.dir / "journal", os.R_OK | os.X_OK):   # a listing of it would look like an empty journal
        raise RunFolderError(f"you may not read {run.dir / 'journal'}", hint=f"ask {owner_of(run.dir)}")
    return run


def check_here(run: Run) -> None:
    """Raise UsageError for a run of another cluster: for this one's Slurm its job ids are other jobs."""
    if (elsewhere := _elsewhere(run)) is not None:
        raise UsageError(elsewhere, hint="type it on a login node of that cluster")


def is_here(run: Run) -> bool:
    """Whether its jobs may be asked for here: nobody knows them to be another cluster's."""
    return _elsewhere(run) is None


def _elsewhere(run: Run) -> str | None:
    """The sentence on a run of another cluster; None = it is of this one, or nobody knows."""
    if not run.cluster or (here := clustername.here()) in ("", run.cluster):
        return None
    return f"the jobs of {run.plan.name} are on cluster {run.cluster}, and this is {here}"


def find_folder(which: str | None) -> Path:
    """The folder of the run that is meant; raises UsageError when none or several are."""
    found = ask(lambda: _look_for(which), f"the folder of run {which}" if which else "this folder")
    if len(found["dirs"]) == 1:
        return Path(found["dirs"][0])
    if found["dirs"]:
        listed = "\n".join(f"  {folder}" for folder in found["dirs"][:SHOWN_CANDIDATES])
        more = len(found["dirs"]) - SHOWN_CANDIDATES
        listed += f"\n  … {more} more" if more > 0 else ""
        raise UsageError(f"{which!r} may mean {len(found['dirs'])} runs:\n{listed}", hint="say which one by its path")
    raise UsageError(found["message"], hint=found["hint"])


def ask(look: Callable[[], T], what: str) -> T:
    """What `look` finds, in a child with a deadline; raises RunFolderError when the folder does not answer."""
    answer = run_in_child(look, FOLDER_DEADLINE_S)
    if answer.late:
        raise RunFolderError(f"{what} does not answer for {FOLDER_DEADLINE_S:.0f} s: its filesystem is frozen or slow",
                             hint="is the filesystem up? try: ls, in another terminal")
    if not answer.is_ok:
        raise RunFolderError(f"{what} cannot be read: {answer.error}")
    assert answer.value is not None
    return answer.value


def ask_scheduler(run: Run) -> Word:
    """The run's unfinished jobs as Slurm (or this machine, for a local run) knows them; never raises for its answer."""
    if run.plan.cluster == "local":
        return _ask_machine(run)
    if (elsewhere := _elsewhere(run)) is not None:
        return Word(None, elsewhere)
    owner = owner_of(run.dir)
    argv = ("squeue", "--noheader", f"--user={owner}", f"--name={run.plan.job_name}", f"--format={SQUEUE_FORMAT}")
    result = slurm.run(argv, slurm.outside_job(os.environ), SQUEUE_DEADLINE_S)
    if not result.is_ok:
        return Word(None, result.stderr.strip() or f"squeue did not answer within {SQUEUE_DEADLINE_S:.0f} s")
    try:
        jobs = tuple(job for job in parse_squeue(result.stdout) if job.name == run.plan.job_name)
    except ParseError as error:
        return Word(None, error.message)
    if not jobs and owner != runfolder.name_of(os.getuid()):
        # PrivateData=jobs hides the jobs of others: slurm.conf(5).
        return Word(None, f"squeue shows no job of {owner} here; it may hide those of other people")
    return Word(jobs)


def owner_of(run_dir: Path) -> str:
    """The user who submitted the run."""
    return runfolder.name_of(run_dir.stat().st_uid)


def describe_end(ended: Ended) -> str:
    """How a run ended, in one line."""
    word = {"completed": "has completed", "gave_up": "has given up", "stopped": "was stopped"}.get(ended.how, ended.how)
    return f"the run {word}: {ended.why} (exit code {ended.exit_code})"


def _ask_machine(run: Run) -> Word:
    """A local run's job is a process, which only its own machine knows."""
    submitted = [event for event in run.journal().events if event.event == "submitted"]
    here = socket.gethostname().split(".")[0]
    if submitted and submitted[-1].host != here:
        return Word(None, f"it is a local run of {submitted[-1].host}, and this is {here}")
    jobs = [str(event.data.get("job")) for event in submitted]
    return Word(tuple(QueuedJob(job, "RUNNING", owner_of(run.dir), run.plan.job_name, "None", "")
                      for job in jobs if local.is_alive(run.dir, job)))


def _look_for(which: str | None) -> dict[str, Any]:
    """{"dirs"} of the runs that may be meant, else why there is none; runs in a child, so it answers in JSON."""
    here = Path.cwd()
    if which is None:
        newest = runfolder.newest_below(here)
        return {"dirs": [str(newest)]} if newest else _nothing("there is no run in this folder")
    path = Path(which)
    if runfolder.is_run_folder(path):
        return {"dirs": [str(path.absolute())]}
    if "/" in which:
        return _nothing(f"{which} holds no run (no run.json)" if path.is_dir() else f"{which}: no such folder")
    dirs = registry.find(which) or _unlisted(here, which)
    return {"dirs": list(map(str, dirs))} if dirs else _nothing(f"no run is known as {which!r}")


def _unlisted(here: Path, which: str) -> list[Path]:
    """Runs of other people, in or below this folder, whose folder has that name or which hold that job."""
    folders = [path.parent for pattern in ("*/run.json", "runs/*/run.json") for path in sorted(here.glob(pattern))]
    exact = [folder for folder in folders if folder.name == which]
    if not exact and which.isdigit():
        exact = [folder for folder in folders if registry.has_job(folder, which)]
    return exact or [folder for folder in folders if folder.name.startswith(which)]


def _nothing(message: str) -> dict[str, Any]:
    known = [f"{entry.name} ({entry.dir})" for entry, _ in zip(registry.entries(), range(4), strict=False)]
    hint = f"your newest runs: {', '.join(known)}" if known else "to make one: safelaunch submit train.yaml"
    return {"dirs": [], "message": message, "hint": hint}
