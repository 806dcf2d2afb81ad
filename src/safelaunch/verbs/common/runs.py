"""Which run RUN means, and what the journal and the scheduler say of it. RUN is a path, a name, a run id, the job id of
any of its jobs, or a unique prefix of name or id. Without it the newest run in this folder is meant. The folder may be
on a frozen filesystem, so a disposable child reads it first.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from safelaunch.base.io import modes, owners
from safelaunch.base.io.probe import run_in_child
from safelaunch.base.model import Request
from safelaunch.config.values import parse_duration_s
from safelaunch.errors import ParseError, RunFolderError, UsageError
from safelaunch.node.host import short_host
from safelaunch.run.io import clustername, journal, local, registry, runfolder, runpath
from safelaunch.run.io.runfolder import Run
from safelaunch.run.journal import Journal
from safelaunch.slurm import jobstates
from safelaunch.slurm.io import slurm
from safelaunch.slurm.slurmtext import (
    SQUEUE_FORMAT,
    STATUS_FORMAT,
    TEAM_FORMAT,
    QueuedJob,
    parse_squeue,
    parse_status,
    parse_team,
)
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.status.states import describe_end as describe_end
from safelaunch.verbs.common import lostfolder, teamruns

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

T = TypeVar("T")
_Command = TypeVar("_Command", bound=Callable[..., object])

FOLDER_DEADLINE_S = 10.0   # a sick parallel filesystem answers in seconds; one that needs longer is frozen
SQUEUE_DEADLINE_S = 4.0    # a person waits; what the journal says is shown in any case
SHOWN_CANDIDATES = 8
COMPLETION_S = 1.0         # somebody has pressed a key


class JournalWatch:
    """A journal that is read again only when a file of it has changed; `steps_kept`, `partly` as in journal.read."""

    def __init__(self, run_dir: Path, steps_kept: int | None = None, partly: bool = False) -> None:
        self._dir, self._steps_kept, self._partly = run_dir, steps_kept, partly
        self._seen: dict[str, int] | None = None

    def poll(self) -> Journal | None:
        """The journal; None = nothing has changed since the last call."""
        sizes = {path.name: path.stat().st_size for path in (self._dir / "journal").glob("*.jsonl")}
        if sizes == self._seen:
            return None
        self._seen = sizes   # taken before the reading: what is appended meanwhile is seen by the next call
        return journal.read(self._dir, self._steps_kept, partly=self._partly)


def run_argument(function: _Command) -> _Command:
    """The same function with the argument `which`."""
    import click  # only verbs have arguments

    return click.argument("which", metavar="[RUN]", required=False, shell_complete=complete_run)(function)


def duration_option(*names: str, help: str) -> Callable[[_Command], _Command]:
    """An option of a time as train.yaml writes it; the function gets seconds, or None."""
    import click

    def read(context: object, option: object, text: str | None) -> float | None:
        try:
            return None if text is None else parse_duration_s(text)
        except ParseError as error:
            raise UsageError(f"{names[0]} {text}: {error.message}") from error

    return click.option(*names, metavar="TIME", callback=read, help=help)


def complete_run(context: object, parameter: object, typed: str) -> list[CompletionItem]:
    """The names of this user's runs that begin so, newest first, else files; a home that hangs holds no prompt up."""
    from click.shell_completion import CompletionItem

    from safelaunch.config.keys import NAME_PATTERN

    known = registry.parse(run_in_child(registry.raw, COMPLETION_S).value or "")
    names = dict.fromkeys(entry.name for entry in known
                          if entry.name.startswith(typed) and re.fullmatch(NAME_PATTERN, entry.name))
    return [CompletionItem(name) for name in names] or [CompletionItem(typed, type="file")]


def load(which: str | None) -> Run:
    """The run that is meant; raises UsageError when none or several are, RunFolderError when it cannot be read."""
    folder = find_folder(which)
    try:
        run = runfolder.load(folder)
    except RunFolderError as error:
        if isinstance(error.__cause__, PermissionError):
            raise _private(folder) from error
        raise
    if not os.access(run.dir / "journal", os.R_OK | os.X_OK):   # a listing of it would look like an empty journal
        raise _private(folder)
    return run


def _private(folder: Path) -> RunFolderError:
    """What to say of a run that this reader may not read, and who may."""
    try:
        status = folder.stat()
    except OSError:
        return RunFolderError(f"you may not look into {folder}: a folder above it is closed to you",
                              hint=f"see which one: namei -l {folder}")
    owner = owners.name_of(status.st_uid)
    is_shared = modes.is_shared(folder)
    whose = f"{owner} and the group {owners.group_of(status.st_gid)}" if is_shared else f"{owner} alone"
    return RunFolderError(
        f"the run in {folder} is private: {whose} may read it",
        hint=f"ask {owner} to add you to the group" if is_shared else
             f"ask {owner} how it is doing; a run that is submitted with kill_switch: {{group: GROUP}} can be read and "
             "stopped by that group")


def check_mine(run: Run, what: str, verb: str) -> None:
    """Raise UsageError for the run of another person: Slurm lets nobody else into a job (srun(1), --jobid)."""
    owner = owner_of(run.dir)
    if owner != owners.name_of(os.getuid()) and os.getuid() != 0:
        raise UsageError(f"only {owner} may {what} of {run.plan.name}: Slurm lets nobody else into the job",
                         hint=f"ask {owner} to type: safelaunch {verb} {run.dir}")


def check_here(run: Run) -> None:
    """Raise UsageError for a run of another cluster: for this one's Slurm its job ids are other jobs."""
    if (elsewhere := _elsewhere(run)) is not None:
        raise UsageError(elsewhere, hint="type it on a login node of that cluster")


def is_here(run: Run) -> bool:
    """Whether its jobs may be asked for here: they are not known to be another cluster's."""
    return _elsewhere(run) is None


def _elsewhere(run: Run) -> str | None:
    """The sentence on a run of another cluster; None = it is of this one, or unknown."""
    if not run.cluster:
        return None
    here = _cluster_here(*(os.environ.get(name, "") for name in ("SLURM_CONF", "SLURM_CLUSTER_NAME", "PATH")))
    if here in ("", run.cluster):
        return None
    return f"the jobs of {run.plan.name} are on cluster {run.cluster}, and this is {here}"


@functools.cache
def _cluster_here(*means: str) -> str:
    """The name of this cluster, asked for once: a table has many runs. `means`: what decides which Slurm answers."""
    return clustername.here()


def newest_here() -> Path | None:
    """The newest run in this folder; None = there is none, or the folder does not answer."""
    answer = run_in_child(lambda: str(newest_below(Path.cwd()) or ""), FOLDER_DEADLINE_S)
    return Path(answer.value) if answer.value else None


def find_sweep(which: str | None) -> list[registry.RegisteredRun]:
    """The runs of the sweep that is meant, in the order of its points; [] = no sweep is meant."""
    if which is None or "/" in which:
        return []
    return registry.sweep_of(registry.parse(ask(registry.raw, "your list of runs")), which)


def find_folder(which: str | None) -> Path:
    """The folder of the run that is meant: your own, one below this folder, else a teammate's that Slurm knows; raises
    UsageError for none or several.
    """
    found = ask(lambda: _find_folder(which), f"the folder of run {which}" if which else "this folder")
    if which and not found["dirs"] and "/" not in which:
        found["dirs"] = teamruns.find(which)
    if which and not found["dirs"] and (lost := lostfolder.find(which)) is not None:
        raise lostfolder.LostFolderError(lost)
    if len(found["dirs"]) == 1:
        return Path(found["dirs"][0])
    if found["dirs"]:
        listed = "\n".join(f"  {folder}" for folder in found["dirs"][:SHOWN_CANDIDATES])
        more = len(found["dirs"]) - SHOWN_CANDIDATES
        listed += f"\n  … {more} more" if more > 0 else ""
        raise UsageError(f"{which!r} may mean {len(found['dirs'])} runs:\n{listed}", hint="name one by its path")
    raise UsageError(found["message"], hint=found["hint"])


class _TooMuch(BaseException):
    """There is more than a person waits for; no OSError, which a search takes for a closed folder."""


def _begin_counting(most_cpu_s: float) -> None:
    """Raise _TooMuch in this child after so much processor time."""
    def give_up(number: int, frame: object) -> NoReturn:
        raise _TooMuch

    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, most_cpu_s)


def ask(work: Callable[[], T], what: str, most_cpu_s: float = 0.0) -> T:
    """What `work` finds, in a child with a deadline; raises RunFolderError when the folder does not answer, or holds
    more than `most_cpu_s` of processor time can look at (0 = no limit).
    """
    def counted() -> T:
        _begin_counting(most_cpu_s)
        return work()

    answer = run_in_child(counted if most_cpu_s else work, FOLDER_DEADLINE_S)
    if answer.error.startswith(_TooMuch.__name__):
        raise RunFolderError(f"{what} holds too much: it was searched for {most_cpu_s:.0f} s",
                             hint="name a folder further below")
    if answer.late:
        raise RunFolderError(f"{what} does not answer for {FOLDER_DEADLINE_S:.0f} s: its filesystem is frozen or slow",
                             hint="is the filesystem up? try: ls, in another terminal")
    if not answer.is_ok:
        raise RunFolderError(f"{what} cannot be read: {answer.error}")
    assert answer.value is not None
    return answer.value


def ask_scheduler(run: Run, with_times: bool = False,
                  mine: Callable[[], SchedulerAnswer] | None = None) -> SchedulerAnswer:
    """The run's unfinished jobs as Slurm (or this machine, for a local run) knows them; never raises for its answer.

    `with_times`: also how long they have left, and when they are expected to start. `mine`: asks for all jobs of one's
    own, of which the run's are taken.
    """
    if (known := known_without_slurm(run)) is not None:
        return known
    owner = owner_of(run.dir)
    format = STATUS_FORMAT if with_times else SQUEUE_FORMAT
    is_own = owner == owners.name_of(os.getuid())
    word = mine() if mine is not None and is_own else ask_squeue(
        (f"--user={owner}", f"--name={run.plan.job_name}"), format)
    if word.jobs is None:
        return word
    jobs = tuple(job for job in word.jobs if job.name == run.plan.job_name)
    if not jobs and not is_own:
        # PrivateData=jobs hides the jobs of others: slurm.conf(5).
        return SchedulerAnswer(None, f"squeue shows no job of {owner} here; it may hide those of other people")
    return word._replace(jobs=jobs)


def ask_squeue(options: Sequence[str], format: str) -> SchedulerAnswer:
    """What squeue says to these options; never raises for its answer."""
    parse = {SQUEUE_FORMAT: parse_squeue, STATUS_FORMAT: parse_status, TEAM_FORMAT: parse_team}[format]
    result = slurm.run(slurm.squeue(options, format), slurm.outside_job(os.environ), SQUEUE_DEADLINE_S)
    if not result.is_ok:
        return SchedulerAnswer(None, result.stderr.strip() or f"squeue did not answer within {SQUEUE_DEADLINE_S:.0f} s")
    try:
        return SchedulerAnswer(parse(result.stdout), asked_t=time.time())
    except ParseError as error:
        return SchedulerAnswer(None, error.message)


def known_without_slurm(run: Run) -> SchedulerAnswer | None:
    """The same of a run that this Slurm need not be asked about: a local one, and one of another cluster."""
    if run.plan.cluster == "local":
        return _ask_machine(run)
    elsewhere = _elsewhere(run)
    return None if elsewhere is None else SchedulerAnswer(None, elsewhere)


def owner_of(run_dir: Path) -> str:
    """The user who submitted the run."""
    return owners.name_of(run_dir.stat().st_uid)


def requests(run: Run) -> tuple[Request, ...]:
    """Control files that are there, seen by the leader or not; none where control/ is closed to this reader."""
    try:
        found = runfolder.requests_of(runfolder.read_requests(run.dir, run.plan.kill_file))
        return tuple(one for one in found if one.name != runfolder.FOLLOWED)   # asks nothing of the run itself
    except OSError:
        return ()


def _ask_machine(run: Run) -> SchedulerAnswer:
    """A local run's job is a process, which only its own machine knows."""
    events, here = run.journal().events, short_host()
    if (host := local.host_of(events)) not in ("", here):
        return SchedulerAnswer(None, f"it is a local run of {host}, and this is {here}")
    return SchedulerAnswer(tuple(QueuedJob(job, jobstates.RUNNING, owner_of(run.dir), run.plan.job_name, "None", "")
                                 for job in local.living_jobs(run.dir, events)))


def _find_folder(which: str | None) -> dict[str, Any]:
    """{"dirs"} of the runs that fit, else why there is none; runs in a child, so it answers in JSON."""
    here = Path.cwd()
    if which is None:
        newest = newest_below(here)
        return {"dirs": [str(newest)]} if newest else _nothing("there is no run in this folder")
    path = Path(which)
    try:
        if runpath.is_run_folder(path):
            return {"dirs": [str(path.absolute())]}
    except PermissionError:   # `load` says whose it is
        return {"dirs": [str(path.absolute())]}
    if "/" in which:
        return _nothing(f"{which} holds no run (no run.json)" if path.is_dir() else f"{which}: no such folder")
    dirs = registry.find(which) or _unlisted(here, which)
    return {"dirs": list(map(str, dirs))} if dirs else _nothing(f"no run is known as {which!r}")


def _unlisted(here: Path, which: str) -> list[Path]:
    """Runs of other users, in or below this folder, with that folder name or job."""
    folders = [path.parent for pattern in ("*/run.json", "runs/*/run.json") for path in sorted(here.glob(pattern))]
    exact = [folder for folder in folders if folder.name == which]
    if not exact and which.isdigit():
        exact = [folder for folder in folders if registry.has_job(folder, which)]
    return exact or [folder for folder in folders if folder.name.startswith(which)]


def _nothing(message: str) -> dict[str, Any]:
    known = [f"{entry.name} ({entry.dir})" for entry, _ in zip(registry.entries(), range(4), strict=False)]
    hint = f"your newest runs: {', '.join(known)}" if known else "to make one: safelaunch submit train.yaml"
    return {"dirs": [], "message": message, "hint": hint}


def newest_below(folder: Path) -> Path | None:
    """The newest run in or below `folder` (this folder, runs/*, */run.json); None = none."""
    candidates = [path.parent for pattern in ("run.json", "*/run.json", "runs/*/run.json")
                  for path in folder.glob(pattern)]
    return max(candidates, key=lambda path: (path / "run.json").stat().st_mtime, default=None)
