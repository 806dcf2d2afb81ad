"""All runs of a sweep at one moment: their table, the causes of those that failed, their end, and how to stop them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from safelaunch.base.endings import RunEnd
from safelaunch.base.jsonform import to_json
from safelaunch.base.model import CHECK_FAILED, DONE, FAILED_FOR_GOOD, STOPPED
from safelaunch.errors import RunFolderError, WaitTimedOut
from safelaunch.run.fold.state import Ended
from safelaunch.run.io import runfolder
from safelaunch.run.io.registry import RegisteredRun
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.status import sweeptable
from safelaunch.status.overview import brief_of
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.status.sweeptable import Sweep, SweepRun
from safelaunch.verbs.common import confirmation, runs, stopping, talk
from safelaunch.verbs.common.talk import Say
from safelaunch.verbs.common.waiting import await_end
from safelaunch.verbs.overview import overview, runlist

BUDGET_SPENT = 11
# Of the exit codes of several runs the one that says most: a failure comes before a stop.
WORST_FIRST = (FAILED_FOR_GOOD, BUDGET_SPENT, CHECK_FAILED, STOPPED)


def status(points: Sequence[RegisteredRun], ask: Callable[[bool], SchedulerAnswer] | None = None) -> Sweep:
    """How all runs are doing; Slurm is asked once, by `ask`."""
    word, now = (ask or runlist.ask_slurm)(False), time.time()
    jobs: dict[str, list[QueuedJob]] = {}
    for job in word.jobs or ():
        jobs.setdefault(job.name, []).append(job)
    dirs = [str(entry.dir) for entry in points]
    found, silent = runlist.visit(dirs, lambda dir: _look(dir, word, jobs, now))
    shown = tuple(SweepRun(_point(entry), brief_of(row["run"]), row["cluster"], *row["cause"])
                  for entry in points if (row := found.get(str(entry.dir))))
    gone = [entry.name for entry in points if found.get(str(entry.dir)) is None and str(entry.dir) not in silent]
    first = points[0].sweep or {}
    is_asked = any(one.run.ended_t is None and one.cluster != "local" for one in shown)
    return Sweep(first.get("name"), first.get("id"), round(now, 3), Counter(one.run.state for one in shown), shown,
                 sweeptable.causes(shown), tuple(silent), tuple(gone), word.trouble if is_asked else "")


def _point(entry: RegisteredRun) -> int | None:
    return entry.sweep["point"] if entry.sweep is not None else None


def _look(dir: str, slurm_answer: SchedulerAnswer, jobs: dict[str, list[QueuedJob]], now: float
          ) -> dict[str, object] | None:
    """A point's row, in a child; None = its folder has gone, or cannot be read."""
    try:
        run = runfolder.load(Path(dir))
        own = runs.known_without_slurm(run) or (
            slurm_answer if slurm_answer.jobs is None else
            slurm_answer._replace(jobs=tuple(jobs.get(run.plan.job_name, ()))))
        return {"run": to_json(overview.brief(run, own, now)), "cluster": run.plan.cluster, "cause": _cause(run)}
    except (RunFolderError, *runlist.FAULTS):
        return None


def _cause(run: Run) -> tuple[str | None, str | None, str | None]:
    """Why the newest attempt that did not end well ended, as its supervisor judged, and why the run did."""
    state = run.state()
    failed = next((one for one in reversed(state.attempts) if one.category not in (None, "none")), None)
    return (failed.category if failed else None, failed.summary if failed else None,
            state.ended.why if state.ended else None)


def wait(points: Sequence[RegisteredRun], timeout_s: float | None, say: Say) -> tuple[int, dict[str, Ended]]:
    """The exit code, and how each run ended, once all have; raises WaitTimedOut. They are waited for one by one, so
    that no more is asked than for one run.
    """
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    ended: dict[str, Ended] = {}
    for entry in points:
        left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
        try:
            ended[entry.name] = await_end(runs.load(str(entry.dir)), left_s, say)
        except WaitTimedOut as error:
            raise WaitTimedOut(f"{len(ended)} of {len(points)} runs have ended within {talk.span(timeout_s or 0)}; "
                               f"{error.message}", hint=error.hint) from error
        say(f"{entry.name}: {runs.describe_end(ended[entry.name])}")
    return exit_code(ended.values()), ended


def exit_code(ended: Iterable[Ended]) -> int:
    """0 when all runs completed, else the code that says most."""
    codes = {one.exit_code for one in ended if one.how != RunEnd.COMPLETED}
    return next((code for code in WORST_FIRST if code in codes), max(codes, default=DONE))


def stop(points: Sequence[RegisteredRun], name: str, within_s: float | None, say: Say) -> int:
    """Stop all runs; the exit code, that of the first one whose stop is not confirmed. All are asked before any is
    waited for, and first those that wait for others: none starts because another ends.
    """
    asked = [(entry, *stopping.ask(entry.dir, name, within_s, partial(_say_of, entry, say)))
             for entry in reversed(points)]
    codes = [code if run is None else confirmation.await_word(run, name, partial(_say_of, entry, say))
             for entry, code, run in reversed(asked)]
    return next((code for code in codes if code != DONE), DONE)


def _say_of(entry: RegisteredRun, say: Say, text: str) -> None:
    say(f"{entry.name}: {text}")
