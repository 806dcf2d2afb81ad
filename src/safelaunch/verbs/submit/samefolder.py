"""Two living runs with one `resume.dir`: each would go on from the other's checkpoints, and overwrite them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from safelaunch.errors import RunFolderError, UsageError
from safelaunch.launch.settings import Settings
from safelaunch.run.io import registry, runfolder
from safelaunch.run.io.registry import RegisteredRun
from safelaunch.slurm.slurmtext import SQUEUE_FORMAT
from safelaunch.verbs.common import runs, talk

MOST_BEFORE = 500   # runs behind each other: whose run.json names more may be somebody else's, and each costs a look


class Conflict(NamedTuple):
    """The living run that writes to the folder, or near it, and whether that is known; if not, nobody can say that it
    has ended.
    """

    name: str
    run_dir: str
    folder: str
    its_folder: str
    state: str
    is_sure: bool

    @property
    def is_refused(self) -> bool:
        """Whether both write to one folder, as is known."""
        return self.is_sure and self.folder == self.its_folder

    @property
    def text(self) -> str:
        theirs = f"the run {self.name} writes its checkpoints ({self.run_dir}: {self.state})"
        if self.folder == self.its_folder:
            return f"{self.folder} (resume.dir) is where {theirs}"
        if self.folder.startswith(self.its_folder):
            return (f"{self.folder} (resume.dir) lies in {self.its_folder}, where {theirs}: it would take a newer one "
                    "of this run for its own")
        return (f"{self.its_folder}, where {theirs}, lies in {self.folder} (resume.dir): this run would take a newer "
                "one of that run for its own")

    @property
    def warning(self) -> str:
        then = "" if self.is_sure else "; Slurm does not say whether it still lives"
        then = "; submit refuses that" if self.is_refused else then
        return f"warning: {self.text}{then}. {self.hint[:1].upper()}{self.hint[1:]}"

    @property
    def hint(self) -> str:
        return (f"write another resume.dir; or end that run: safelaunch stop {self.run_dir}; or start behind it: "
                f"--after {self.run_dir}; or, where both may write there: resume.shared=true")


def refuse(folder: str, settings: Settings, say: talk.Say) -> None:
    """Raise UsageError where another living run has the folder; a warning where that is not known, or where it has one
    above or below.
    """
    found = find(folder, settings)
    if found is not None and found.is_refused:
        raise UsageError(f"{found.text}; nothing was submitted", hint=found.hint)
    if found is not None:
        say(found.warning)


def find(folder: str, settings: Settings) -> Conflict | None:
    """The newest living run of one's own with this folder, or else with one near it, but for those that the new one
    waits for.
    """
    before = _before(settings)
    waits_for = set(re.findall(r"\d+", str(settings.slurm.get("dependency") or "")))
    for entry in sorted(registry.with_resume(folder), key=lambda entry: entry.resume != folder):
        if entry.ended_t is None and str(entry.dir) not in before and (
                found := _living(entry, folder, waits_for)) is not None:
            return found
    return None


def _before(settings: Settings) -> Collection[str]:
    """Folders of the runs that have ended before this one starts: those it waits for, and those that they do."""
    found: set[str] = set()
    waiting = [one.run_dir for one in settings.after]
    while waiting and len(found) < MOST_BEFORE:
        run_dir = waiting.pop()
        if run_dir not in found:
            found.add(run_dir)
            run = _load(run_dir)
            waiting += [one.run_dir for one in run.plan.after] if run is not None else []
    return found


def _living(entry: RegisteredRun, folder: str, waits_for: Collection[str]) -> Conflict | None:
    """What Slurm and the run's journal say; None = it has ended, or Slurm knows no job of it any more."""
    run = _load(str(entry.dir))
    if run is None or run.plan.run_id != entry.run_id:   # its folder is gone, or another run's; its job may run
        word = runs.ask_squeue(("--me", f"--name={entry.name}.{entry.run_id}"), SQUEUE_FORMAT)
        if word.jobs is None and not entry.cluster:   # a local run, of which nothing is left
            return None
        state = "its folder is gone, its job runs"
    else:
        known = run.state()
        if known.ended is not None:
            return None
        word, state = runs.ask_scheduler(run), known.name
    if word.jobs is None:
        return Conflict(entry.name, str(entry.dir), folder, entry.resume, state, is_sure=False)
    if not word.jobs or {job.id for job in word.jobs} & set(waits_for):
        return None
    return Conflict(entry.name, str(entry.dir), folder, entry.resume, f"{state}, job {word.jobs[0].id}", is_sure=True)


def _load(run_dir: str) -> runfolder.Run | None:
    """The run, from a child first: its filesystem may be frozen."""
    from pathlib import Path

    try:
        runs.ask(lambda: (Path(run_dir) / "run.json").stat().st_size, run_dir)
        return runfolder.load(Path(run_dir))
    except RunFolderError:
        return None
