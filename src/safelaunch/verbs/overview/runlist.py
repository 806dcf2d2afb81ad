"""The table of `safelaunch status` without a run: your runs, or the team's, that go on or ended within a day."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safelaunch.base.io.probe import run_in_child
from safelaunch.base.jsonform import to_json
from safelaunch.errors import RunFolderError
from safelaunch.run.io import registry, runfolder, runpath
from safelaunch.run.io.registry import RegisteredRun
from safelaunch.slurm.slurmtext import STATUS_FORMAT, TEAM_FORMAT, QueuedJob
from safelaunch.status import table
from safelaunch.status.overview import Brief, brief_of
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.verbs.common import runs, talk, teamruns
from safelaunch.verbs.common.speech import SPEECH
from safelaunch.verbs.overview.overview import brief
from safelaunch.watch.io.memory import Known

VERSION = 1
RECENT_S = 86400.0      # what ended in the last night is news
DEADLINE_S = 3.0        # for all folders at once; those of a frozen filesystem are then told apart
FAULTS = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


class Listing(NamedTuple):
    """Briefs of runs, newest first; `silent`: folders that do not answer; `closed`: teammates' that may not be read."""

    briefs: tuple[Brief, ...]
    silent: tuple[str, ...]
    closed: int
    trouble: str
    now: float


def collect(is_all: bool, with_team: bool, ask: Callable[[bool], SchedulerAnswer] | None = None) -> Listing:
    """The runs to show; `ask` returns the jobs that Slurm knows, of all users if its argument is true."""
    lists = runs.ask(lambda: [registry.raw(), registry.raw(registry.others_file)], "your list of runs")
    mine, now = registry.parse(lists[0]), time.time()
    wanted = [entry for entry in mine if is_all or entry.ended_t is None or now - entry.ended_t < RECENT_S]
    over = {str(entry.dir): {**entry.brief, "now_t": round(now, 3)} for entry in wanted if entry.brief is not None}
    is_live = with_team or len(over) < len(wanted)
    word = (ask or ask_slurm)(with_team) if is_live else SchedulerAnswer(())
    others = others_of(word, registry.parse(lists[1]), {entry.dir for entry in mine}, is_all) if with_team else []
    jobs: dict[str, list[QueuedJob]] = {}
    for job in word.jobs or ():
        jobs.setdefault(job.name, []).append(job)
    dirs = [str(dir) for dir in (*(entry.dir for entry in wanted), *others)]
    found, silent = visit(dirs, lambda dir: (
        (over[dir] if runpath.is_run_folder(Path(dir)) else None) if dir in over else _glance(dir, word, jobs, now)))
    _note_ends(wanted, found)
    briefs = [brief_of(one) for dir in dirs if (one := found.get(dir)) and "error" not in one]
    shown = [one for one in briefs if is_all or one.ended_t is None or now - one.ended_t < RECENT_S]
    closed = sum(1 for dir in map(str, others) if "error" in found.get(dir, {}))
    # The journal has all about ended runs: then a machine without Slurm is no trouble.
    trouble = word.trouble if with_team or any(one.ended_t is None for one in shown) else ""
    return Listing(tuple(shown), tuple(silent), closed, trouble, now)


def ask_slurm(of_all: bool) -> SchedulerAnswer:
    """One's own unfinished jobs, or everybody's, with their times."""
    return runs.ask_squeue((), TEAM_FORMAT) if of_all else runs.ask_squeue(("--me",), STATUS_FORMAT)


def text(listing: Listing, width: int | None, with_owner: bool, most_lines: int | None = None) -> list[table.Line]:
    """The table as lines, without control codes."""
    lines = table.render(listing.briefs, SPEECH, width, with_owner, most_lines)
    return [(talk.clean(line), style) for line, style in lines]


def notes(listing: Listing) -> list[str]:
    """The messages beside the table, a line each."""
    told = [f"no clear answer from Slurm: {listing.trouble}"] if listing.trouble else []
    told += [f"{dir} does not answer: its filesystem is frozen or slow" for dir in listing.silent]
    if listing.closed:
        told.append(f"{listing.closed} more {'run' if listing.closed == 1 else 'runs'} may not be read by you")
    return list(map(talk.clean, told))


def as_json(listing: Listing) -> dict[str, Any]:
    """The object of `status --json` without a run."""
    return {"v": VERSION, "now_t": round(listing.now, 3), "runs": to_json(listing.briefs),
            "silent": list(listing.silent), "closed": listing.closed, "trouble": listing.trouble}


def others_of(slurm_answer: SchedulerAnswer, before: Sequence[RegisteredRun], known: set[Path], is_all: bool
              ) -> list[Path]:
    """Folders of other users' runs: those with a job in Slurm, and for `is_all` those seen before."""
    found = teamruns.living(slurm_answer.jobs or ())
    teamruns.remember([one for one in found if Path(one.folder) not in {entry.dir for entry in before}])
    earlier = [entry.dir for entry in before] if is_all else []
    return [dir for dir in dict.fromkeys((*(Path(one.folder) for one in found), *earlier)) if dir not in known]


def visit(dirs: Sequence[str], work: Callable[[str], Any],
          deadline_s: float | None = None) -> tuple[dict[str, Any], list[str]]:
    """(folder → what `work` finds there, folders that do not answer), in disposable children; `deadline_s` for all."""
    if not dirs:
        return {}, []
    within_s = DEADLINE_S if deadline_s is None else deadline_s
    answer = run_in_child(lambda: {dir: work(dir) for dir in dirs}, within_s)
    if answer.is_ok and answer.value is not None:
        return answer.value, []
    from safelaunch.watch.io.reading import RunReader  # knows which folders lie on the filesystem that hangs

    return RunReader(ask=lambda act, _: run_in_child(act, within_s)).visit({dir: Known() for dir in dirs}, work)


def _glance(dir: str, slurm_answer: SchedulerAnswer, jobs: dict[str, list[QueuedJob]], now: float
            ) -> dict[str, Any] | None:
    """A run's line, in a child; None = the folder has gone."""
    try:
        run = runfolder.load(Path(dir))
        own = runs.known_without_slurm(run) or (
            slurm_answer if slurm_answer.jobs is None else
            slurm_answer._replace(jobs=tuple(jobs.get(run.plan.job_name, ()))))
        return dict(to_json(brief(run, own, now)))
    except (RunFolderError, *FAULTS) as error:
        return in_words(error)


def in_words(error: Exception) -> dict[str, str] | None:
    """What stands for a run whose folder cannot be read; None = the folder has gone."""
    cause = error.__cause__ if isinstance(error, RunFolderError) else error
    said = error.message if isinstance(error, RunFolderError) else str(error)
    return None if isinstance(cause, FileNotFoundError) else {"error": said}


def _note_ends(wanted: Iterable[RegisteredRun], found: dict[str, Any]) -> None:
    """Remember which have ended: their folders are not read again."""
    registry.note_ends(entry._replace(brief=one) for entry in wanted
                       if entry.brief is None and (one := found.get(str(entry.dir))) and one.get("ended_t") is not None)
