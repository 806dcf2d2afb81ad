"""safelaunch logs: the training's output across all attempts, with a line between two of them."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import click

from safelaunch.base.endings import BAD_ENDS
from safelaunch.base.io import sharedfile
from safelaunch.errors import UsageError
from safelaunch.run.io.runfolder import Run
from safelaunch.verbs.common import runs, talk, terminal
from safelaunch.verbs.logs import loglines
from safelaunch.verbs.logs.attemptlogs import AttemptLog, LogChoice, LogPart
from safelaunch.verbs.logs.logfollow import follow_logs
from safelaunch.verbs.logs.logparts import folded, lines_of, read_logs
from safelaunch.verbs.logs.logshow import LogWriter
from safelaunch.verbs.logs.logsince import Since, parse_since
from safelaunch.verbs.why.whysubject import Subject
from safelaunch.why.verdict import Verdict

FOLLOW_LINES = 10   # as tail -f


@click.command()
@runs.run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on across attempts until the run has ended.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last LINES lines (default: all; 10 with -f).")
@click.option("--attempt", type=click.IntRange(1), help="Only this attempt.")
@click.option("--rank", type=click.IntRange(0), help="Only lines of this global rank.")
@click.option("--host", help="Only lines of this host, or of hosts as n[0-3].")
@click.option("--grep", metavar="RE", help="Only lines that match this regular expression.")
@click.option("--since", metavar="TIME", help="Only lines from then on: 10m (ago) or 2026-11-25T09:00.")
@click.option("--fold", is_flag=True, help="Show lines that several ranks print alike once, with their hosts.")
@click.option("--first-error", is_flag=True, help="The first error of the last attempt that failed, and its place.")
@click.option("--json", "as_json", is_flag=True, help="Where the logs are, as one JSON object.")
def command(
    which: str | None, follow: bool, lines: int | None, attempt: int | None, rank: int | None, host: str | None,
    grep: str | None, since: str | None, fold: bool, first_error: bool, as_json: bool,
) -> int:
    """Show the training's log across attempts."""
    if (first_error or as_json) and (follow or fold or since is not None):
        raise UsageError("--first-error and --json cannot be combined with -f, --fold or --since")
    choice = LogChoice(runs.load(which), attempt, rank, host, grep)
    if since is not None:
        choice = choice._replace(begin=Since(choice.run, parse_since(since, time.time()), talk.say).start)
    state = choice.run.state(partly=True)
    for path in choice.run.closed_logs:
        talk.say(f"{path} cannot be read: Permission denied")
    if follow:
        most = FOLLOW_LINES if lines is None and since is None else lines
        _write(follow_logs(choice, most, talk.say), fold, is_live=True)
        return 0
    logs = choice.logs(state)
    if as_json:
        _emit_places(choice.run, logs)
    elif not logs:
        which_log = f"attempt {attempt} has no log" if attempt else "there is no log yet"
        talk.say(f"{which_log}; the run is {state.name}")
    elif first_error:
        _show_first_error(choice, logs)
    elif not _write(read_logs(choice, logs, lines), fold) and lines != 0:
        wanted = (("--rank", rank), ("--host", host), ("--grep", grep), ("--since", since))
        asked = " ".join(f"{option} {value}" for option, value in wanted if value is not None)
        talk.say(f"no line fits {asked}" if asked else "no line has been logged yet")
    return 0


def _write(parts: Iterable[LogPart], fold: bool, is_live: bool = False) -> bool:
    """All parts to stdout, at once if they are `is_live`; whether there was any."""
    writer, is_any = _writer(), False
    for log, data in folded(parts, is_live) if fold else parts:
        writer.write(log, data)
        is_any = is_any or bool(data)
        if is_live and data:
            sys.stdout.buffer.flush()
    sys.stdout.buffer.flush()
    return is_any


def _writer() -> LogWriter:
    is_terminal = talk.is_for_person()
    return LogWriter(sys.stdout.buffer, is_terminal, is_terminal and terminal.has_colour())


def _show_first_error(choice: LogChoice, logs: list[AttemptLog]) -> None:
    """The line that `why` calls the cause, of the whole log or of those of its lines that are wanted."""
    from safelaunch.verbs.why import whyrun, whyverdict  # only this needs the rules

    failed = [log for log in logs if log.attempt is not None and log.attempt.ended in BAD_ENDS]
    log = (failed or logs)[-1]
    keep = choice.keep(log)
    if keep is not None:
        with tempfile.NamedTemporaryFile(suffix=".log") as wanted, sharedfile.stream(log.path) as file:
            wanted.writelines(line if keep(line) else b"\n"[:line.endswith(b"\n")] for line in lines_of(file))
            wanted.flush()
            _show_cause(whyverdict.judge_subject(Subject((Path(wanted.name),)))[1], log, is_copy=True)
    elif log.attempt is None:
        _show_cause(whyverdict.judge_subject(Subject((log.path,)))[1], log)
    else:
        _show_cause(whyverdict.judge_subject(whyrun.of_run(choice.run, log.number))[1], log)


def _show_cause(verdict: Verdict, log: AttemptLog, is_copy: bool = False) -> None:
    cause, writer = verdict.cause, _writer()
    writer.write(log, b"")   # its header
    if cause is None:
        talk.say(talk.clean(f"no line of the log states the cause; why: {verdict.category}: {verdict.summary}"))
        return
    found = loglines.read_cited(Path(cause.file), cause.offset, bool(cause.block))
    talk.say(f"{log.path if is_copy else cause.file}:{found.line_number}:")
    writer.write(log, b"".join(found.lines))
    sys.stdout.buffer.flush()


def _emit_places(run: Run, logs: list[AttemptLog]) -> None:
    talk.emit_json({"v": 1, "name": run.plan.name, "run_dir": str(run.dir), "attempts": [
        {"number": log.number, "file": str(log.path), "bytes": log.path.stat().st_size, "nodes": list(log.nodes),
         "job": log.attempt.job if log.attempt else None,
         "resume_step": log.attempt.resume_step if log.attempt else None,
         "ended": log.attempt.ended if log.attempt else None} for log in logs]})
