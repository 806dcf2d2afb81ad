"""safelaunch progress: which steps are read in a log, and by which lines; to try a pattern for progress.step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from safelaunch.status.speech import duration
from safelaunch.verbs.common import runs, talk, terminal
from safelaunch.verbs.logs import steplook

NONE_READ = 1


@click.command()
@click.argument("which", metavar="[LOG | RUN]", required=False, shell_complete=runs.complete_run)
@click.option("--pattern", metavar="REGEX", help="As progress.step: a regular expression whose one group is the step.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, pattern: str | None, as_json: bool) -> int:
    """Show which steps are read in a log: of a file, of "-" (standard input), or of a run's newest attempt.

    Exit code 1: no line names a step that is read.
    """
    seen = steplook.look(steplook.find(which, pattern))
    if as_json:
        talk.emit_json(seen)
    else:
        terminal.echo(_rows(seen))
    return 0 if seen["last"] is not None else NONE_READ


def _rows(status: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    own = status["pattern"] != "auto"
    yield "log", f"{status['log']}, {_lines(status['lines'])}", ""
    yield "pattern", f"{status['pattern']}{'' if own else ': the lines of known trainers'}", ""
    if status["last"] is None:
        yield "read", "no line names a step that is read", "red"
        if status["place"]:
            yield "progress", f"{status['place']}, which tells a hang; the log names no step", ""
    else:
        yield "read", f"{_lines(status['read'])} name a step", "green"
        for label in ("first", "last"):
            of = f" of {status['total']}" if label == "last" and status["total"] else ""
            yield label, "step {step}{of}, in line {line}: {text}".format(**status[label], of=of), ""
    yield "step time", _step_time(status), ""
    if status["loss"] is not None:
        yield "loss", str(status["loss"]), ""
    others = status["unread"]
    yield "not read", _lines(others["lines"]) + (", the last of them:" if others["last"] else ""), ""
    yield from (("", text, "dim") for text in others["last"])
    if status["last"] is None and others["nearest"]:
        yield "nearest", others["nearest"], ""
        yield "next", r"try a pattern with one group for the step, such as --pattern 'batch (\d+)'", "bold"
    elif status["last"] is not None and own:
        yield "next", f"in train.yaml: progress: {{step: '{status['pattern']}'}}", "bold"


def _step_time(status: dict[str, Any]) -> str:
    if status["step_time_s"] is None:
        return "no line names one: the times between steps are measured"
    return f"{duration(status['step_time_s'], talk.span)} (median {duration(status['typical_step_time_s'], talk.span)})"


def _lines(number: int) -> str:
    return "1 line" if number == 1 else f"{number} lines"
