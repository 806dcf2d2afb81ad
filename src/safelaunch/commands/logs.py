"""safelaunch logs: the training's output across all attempts. stdout is the log's bytes, stderr says whose they are."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import click

from safelaunch.adapters import sharedfile
from safelaunch.adapters.runfolder import Run
from safelaunch.core.endings import BAD_ENDS
from safelaunch.core.why.verdict import Verdict
from safelaunch.errors import UsageError
from safelaunch.views import loglines, runs, talk
from safelaunch.views.attemptlogs import AttemptLog, LogChoice, LogPart
from safelaunch.views.logfollow import follow_logs
from safelaunch.views.logparts import lines_of, read_logs
from safelaunch.views.whysubject import Subject

FOLLOW_LINES = 10   # as tail -f


@click.command()
@runs.run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on across attempts until the run has ended.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last LINES lines (default: all; 10 with -f).")
@click.option("--attempt", type=click.IntRange(1), help="Only this attempt.")
@click.option("--rank", type=click.IntRange(0), help="Only lines of this global rank.")
@click.option("--host", help="Only lines of this host, or of hosts as n[0-3].")
@click.option("--grep", metavar="RE", help="Only lines that match this regular expression.")
@click.option("--first-error", is_flag=True, help="The first error of the last attempt that failed, and its place.")
@click.option("--json", "as_json", is_flag=True, help="Where the logs are, as one JSON object.")
def command(
    which: str | None, follow: bool, lines: int | None, attempt: int | None, rank: int | None, host: str | None,
    grep: str | None, first_error: bool, as_json: bool,
) -> int:
    """Show the training's log across attempts."""
    choice = LogChoice(runs.load(which), attempt, rank, host, grep)
    if follow and (first_error or as_json):
        raise UsageError("-f cannot be combined with --first-error or --json")
    state = choice.run.state()
    if follow:
        _write(follow_logs(choice, FOLLOW_LINES if lines is None else lines, talk.say), is_live=True)
        return 0
    logs = choice.logs(state)
    if as_json:
        _emit_places(choice.run, logs)
    elif not logs:
        which_log = f"attempt {attempt} has no log" if attempt else "there is no log yet"
        talk.say(f"{which_log}; the run is {state.name}")
    elif first_error:
        _show_first_error(choice, logs)
    else:
        _write(read_logs(choice, logs, lines))
    return 0


def _write(parts: Iterable[LogPart], is_live: bool = False) -> None:
    """The bytes to stdout, at once if it `is_live`; whose they are to stderr, before the first of each attempt."""
    shown: int | None = None
    for log, data in parts:
        if log.number != shown:
            talk.say(log.header)
            shown = log.number
        sys.stdout.buffer.write(data)
        if is_live:
            sys.stdout.buffer.flush()
    sys.stdout.buffer.flush()


def _show_first_error(choice: LogChoice, logs: list[AttemptLog]) -> None:
    """The line that `why` calls the cause, of the whole log or of those of its lines that are wanted."""
    from safelaunch.views import whyrun, whyverdict  # only this needs the rules

    failed = [log for log in logs if log.attempt is not None and log.attempt.ended in BAD_ENDS]
    log = (failed or logs)[-1]
    keep = choice.keep(log)
    talk.say(log.header)
    if keep is not None:
        with tempfile.NamedTemporaryFile(suffix=".log") as wanted, sharedfile.stream(log.path) as file:
            wanted.writelines(line if keep(line) else b"\n"[:line.endswith(b"\n")] for line in lines_of(file))
            wanted.flush()
            _show_cause(whyverdict.judge_subject(Subject((Path(wanted.name),)))[1], log.path)
    elif log.attempt is None:
        _show_cause(whyverdict.judge_subject(Subject((log.path,)))[1], log.path)
    else:
        _show_cause(whyverdict.judge_subject(whyrun.of_run(choice.run, log.number))[1], None)


def _show_cause(verdict: Verdict, shown_as: Path | None) -> None:
    cause = verdict.cause
    if cause is None:
        talk.say(talk.clean(f"no line of the log states the cause; why: {verdict.category}: {verdict.summary}"))
        return
    found = loglines.read_cited(Path(cause.file), cause.offset, bool(cause.block))
    talk.say(f"{shown_as or cause.file}:{found.line_number}:")
    sys.stdout.buffer.write(b"".join(found.lines))
    sys.stdout.buffer.flush()


def _emit_places(run: Run, logs: list[AttemptLog]) -> None:
    talk.emit_json({"v": 1, "name": run.plan.name, "run_dir": str(run.dir), "attempts": [
        {"number": log.number, "file": str(log.path), "bytes": log.path.stat().st_size, "nodes": list(log.nodes),
         "job": log.attempt.job if log.attempt else None,
         "resume_step": log.attempt.resume_step if log.attempt else None,
         "ended": log.attempt.ended if log.attempt else None} for log in logs]})
