"""safelaunch as a library: submit, load, runs, and a Run with what the verbs do (docs/python.md).

The verbs stand on the same functions. Nothing here prints, exits or reads a command line. `say` takes what a verb would
print on stderr. Each call imports what it needs, so `import safelaunch` is cheap.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safelaunch.verbs.common.talk import Say, hush

if TYPE_CHECKING:
    from safelaunch.base.model import Event
    from safelaunch.config.resolve import Resolved
    from safelaunch.run.fold.state import Ended
    from safelaunch.run.io.runfolder import Run as StoredRun
    from safelaunch.status.values import RunStatus, RunTable
    from safelaunch.verbs.control.holding import HoldAnswer
    from safelaunch.why.verdict import Verdict

DONE = 0


@dataclass(frozen=True)
class LogLine:
    """One line of the training's output, and the number of the attempt that wrote it."""

    attempt: int
    text: str


@dataclass(frozen=True)
class StopAnswer:
    """What has become of a stop, in sentences; `exit_code` is that of `safelaunch stop`."""

    exit_code: int
    sentences: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Whether the stop is confirmed, or there is nothing to stop. Else the request stays."""
        return self.exit_code == DONE


class RunHandle:
    """A run, and all that can be asked of it. Each call reads the run again."""

    def __init__(self, stored: StoredRun) -> None:
        self._stored = stored

    def __repr__(self) -> str:
        return f"<safelaunch run {self.name} ({self.run_id}) in {self.dir}>"

    @property
    def name(self) -> str:
        """The name that train.yaml gave it."""
        return self._stored.plan.name

    @property
    def run_id(self) -> str:
        """Eight hexadecimal digits."""
        return self._stored.plan.run_id

    @property
    def dir(self) -> Path:
        """The run folder."""
        return self._stored.dir

    def status(self) -> RunStatus:
        """How it is doing now, by its journal and by Slurm, which is asked once."""
        from safelaunch.status.values import status_of
        from safelaunch.verbs.common.runs import ask_scheduler
        from safelaunch.verbs.overview.overview import overview

        word = ask_scheduler(self._stored, with_times=True)
        return status_of(overview(self._stored, word, time.time()))

    def events(self, *, follow: bool = False, all: bool = False, say: Say = hush) -> Iterator[Event]:
        """The events, each once; with `all` every line of the journal. `follow` goes on until the run has ended."""
        from safelaunch.verbs.logs.eventstream import stream

        for events in stream(self._stored, follow, all, say):
            yield from events

    def logs(
        self, *, follow: bool = False, lines: int | None = None, attempt: int | None = None, rank: int | None = None,
        host: str | None = None, grep: str | None = None, since: str | float | None = None, fold: bool = False,
        say: Say = hush,
    ) -> Iterator[LogLine]:
        """The training's output across attempts, or its last `lines`; bytes that are not UTF-8 are replaced. `since`:
        "10m" (ago), a time as ISO 8601, or epoch seconds; `fold`: a line that several ranks print alike comes once.
        `follow` goes on until the run has ended; of a run that has just ended, all lines come, after a second. Raises
        UsageError for a filter that cannot be obeyed.
        """
        from safelaunch.verbs.logs.attemptlogs import LogChoice
        from safelaunch.verbs.logs.logfollow import follow_logs, wait_for_last_lines
        from safelaunch.verbs.logs.logparts import folded, read_logs, split_lines
        from safelaunch.verbs.logs.logsince import Since, parse_since

        choice = LogChoice(self._stored, attempt, rank, host, grep)
        if since is not None:
            since_t = parse_since(since, time.time()) if isinstance(since, str) else float(since)
            choice = choice._replace(begin=Since(self._stored, since_t, say).start)
        if not follow:
            wait_for_last_lines(self._stored)
        parts = follow_logs(choice, lines, say) if follow else read_logs(
            choice, choice.logs(self._stored.state()), lines)
        for log, line in split_lines(folded(parts, follow) if fold else parts):
            yield LogLine(log.number, line.decode(errors="replace"))

    def why(self, attempt: int | None = None) -> Verdict:
        """The first cause of a failure: of that attempt, else of the newest that did not end well. Raises UsageError
        where there is no such attempt.
        """
        from safelaunch.verbs.why import whyrun, whyverdict

        return whyverdict.judge_subject(whyrun.of_run(self._stored, attempt))[1]

    def report(self, file: str | os.PathLike[str] | None = None) -> str:
        """What became of it as one HTML page (docs/report.md), also in `file`. UsageError: that cannot be written."""
        from safelaunch.verbs.report import reportpage

        page = reportpage.render(self._stored, time.time())
        if file is not None:
            reportpage.store(Path(file), page)
        return page

    def wait(self, timeout: float | None = None, *, say: Say = hush) -> Ended:
        """How it has ended, once it has. `timeout` in seconds; then WaitTimedOut, which is a TimeoutError."""
        from safelaunch.verbs.common.waiting import await_end

        return await_end(self._stored, timeout, say)

    def stop(self, *, checkpoint: bool = False, now: bool = False, within_s: float | None = None) -> StopAnswer:
        """End it for good: it is asked to save and end. With `checkpoint` it ends at its next complete checkpoint, at
        the latest after `within_s`. With `now` it is killed. Raises UsageError and RunFolderError.
        """
        from safelaunch.verbs.common import stopping

        said: list[str] = []
        name = stopping.stop_name(now, checkpoint)
        return StopAnswer(stopping.stop(self.dir, name, within_s, said.append), tuple(said))

    def hold(self, why: str = "") -> HoldAnswer:
        """Start no new attempt until `resume`. Raises RunFolderError."""
        from safelaunch.verbs.control import holding

        return holding.hold(self._stored, why)

    def resume(self) -> HoldAnswer:
        """Take a hold back. Raises UsageError for a run that has ended, and RunFolderError."""
        from safelaunch.verbs.control import holding

        return holding.resume(self._stored)


def submit(
    config: str | os.PathLike[str] | Mapping[str, object], *, sbatch: Sequence[str] = (), say: Say = hush,
    **overrides: object,
) -> RunHandle:
    """Submit a training: the path of a train.yaml, or its keys as a mapping. Each keyword is a key of train.yaml that
    counts instead of the file's; `sbatch` are flags such as "--qos=high". Raises ConfigError, UsageError,
    TemplateError, RunFolderError and SlurmError.
    """
    found = _submit(config, sbatch, say, overrides, is_sweep=False)
    return found[0]


def submit_sweep(
    config: str | os.PathLike[str] | Mapping[str, object], *, sbatch: Sequence[str] = (), say: Say = hush,
    **overrides: object,
) -> list[RunHandle]:
    """Submit a run for each point of a config with `sweep`; in the order of its points. Arguments and errors are those
    of `submit`. An error after the first run leaves those that are submitted; the same call goes on with the others.
    """
    return _submit(config, sbatch, say, overrides, is_sweep=True)


def _submit(
    config: str | os.PathLike[str] | Mapping[str, object], sbatch: Sequence[str], say: Say,
    overrides: Mapping[str, object], *, is_sweep: bool,
) -> list[RunHandle]:
    from safelaunch.config.io import configfiles
    from safelaunch.errors import UsageError
    from safelaunch.verbs.submit import sweeping

    words = configfiles.override_words(overrides)

    def read() -> list[Resolved]:
        found = configfiles.read_mapping(config, words, sbatch) if isinstance(config, Mapping) else (
            configfiles.read_each(os.fspath(config), words, sbatch))
        if (found[0].point is not None) != is_sweep:
            raise UsageError("this config is a sweep" if not is_sweep else "this config has no sweep",
                             hint=f"call safelaunch.{'submit' if is_sweep else 'submit_sweep'}")
        return found

    submitted = sweeping.submit(read, say)
    if not isinstance(submitted, sweeping.SubmittedSweep):
        return [RunHandle(submitted.run)]
    if submitted.failed is not None:
        raise submitted.failed
    return [RunHandle(submitted.runs[number].run) for number in sorted(submitted.runs)]


def load(which: str | os.PathLike[str] | None = None) -> RunHandle:
    """The run of that path, name, run id or job id, as the verbs take it; None = the newest in this folder. Raises
    UsageError when none or several are meant, RunFolderError when it cannot be read.
    """
    from safelaunch.verbs.common import runs as runviews  # not what submit needs

    return RunHandle(runviews.load(None if which is None else os.fspath(which)))


def runs(*, all: bool = False, team: bool = False) -> RunTable:
    """Your runs that go on or ended within a day; `all` also earlier ones, `team` also other users'. Slurm is asked
    once. Raises RunFolderError where the list of runs does not answer.
    """
    from safelaunch.status.values import table_of
    from safelaunch.verbs.overview.runlist import collect

    found = collect(all, team)
    return table_of(found.briefs, found.silent, found.closed, found.trouble, found.now)
