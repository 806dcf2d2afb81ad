"""What status, why, wait and stop show where a sweep is meant."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence

import click

from safelaunch.run.io.registry import RegisteredRun
from safelaunch.status import sweeptable
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.status.sweeptable import Sweep
from safelaunch.verbs.common import talk, terminal
from safelaunch.verbs.common.speech import SPEECH
from safelaunch.verbs.status import sweepruns as sweeps


def status(points: Sequence[RegisteredRun], as_json: bool) -> int:
    """The table of all points."""
    seen = sweeps.status(points)
    if as_json:
        talk.emit_json(seen.to_json())
    else:
        _tell(seen)
    return 0


def watch(points: Sequence[RegisteredRun], every_s: float, ask: Callable[[bool], SchedulerAnswer]) -> int:
    """The table, again and again until all have ended: in place on a terminal, else one below the other."""
    is_terminal, seen = talk.is_for_person(), sweeps.status(points, ask)
    if not is_terminal:
        _tell(seen)
    elif not _is_over(seen):
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(highlight=False), auto_refresh=False, transient=True) as live:
            while not _is_over(seen):
                notes = _notes(seen)
                lines = [*_lines(seen, live.console.size.height - len(notes) - 3), *notes]
                live.update(Text.from_ansi("\n".join(lines)), refresh=True)
                time.sleep(every_s)
                seen = sweeps.status(points, ask)
    while not _is_over(seen):
        time.sleep(every_s)
        seen = sweeps.status(points, ask)
        click.echo()
        _tell(seen)
    if is_terminal:
        _tell(seen)   # what is over may scroll
    return 0


def _is_over(sweep: Sweep) -> bool:
    return not sweep.silent and all(one.run.ended_t is not None for one in sweep.points)


def _tell(sweep: Sweep) -> None:
    for line in _lines(sweep):
        click.echo(line)
    for note in _notes(sweep):
        talk.say(note)


def _lines(sweep: Sweep, most: int | None = None) -> list[str]:
    lines = sweeptable.render(sweep, SPEECH, terminal.width() if talk.is_for_person() else None, most)
    return [terminal.coloured(talk.clean(line), style) for line, style in lines]


def _notes(sweep: Sweep) -> list[str]:
    told = [f"no clear answer from Slurm: {sweep.trouble}"] if sweep.trouble else []
    told += [f"{dir} does not answer: its filesystem is frozen or slow" for dir in sweep.silent]
    if gone := sweep.gone:
        told.append(f"no run is to be read in the folders of {sweeptable.some(gone)}: were they deleted?")
    return [talk.clean(one) for one in told]


def why(points: Sequence[RegisteredRun], as_json: bool) -> int:
    """The causes of the points that failed, grouped."""
    seen = sweeps.status(points)
    if as_json:
        talk.emit_json({key: value for key, value in seen.to_json().items() if key not in ("points", "trouble")})
        return 0
    width = terminal.width() if talk.is_for_person() else None
    for line in map(talk.clean, sweeptable.render_causes(seen)):
        click.echo(line if width is None else textwrap.fill(line, width, subsequent_indent="    ",
                                                            break_on_hyphens=False))
    for note in _notes(seen._replace(trouble="")):   # the causes are the journals'
        talk.say(note)
    return 0


def wait(points: Sequence[RegisteredRun], timeout_s: float | None, as_json: bool) -> int:
    """Until all have ended; the exit code."""
    code, ended = sweeps.wait(points, timeout_s, lambda text: talk.say(talk.clean(text)))
    if as_json:
        first = points[0].sweep or {}
        talk.emit_json({"v": 1, "sweep": first.get("name"), "sweep_id": first.get("id"), "exit_code": code, "runs": [
            {"name": name, "state": one.how, "exit_code": one.exit_code, "why": one.why, "t": one.t}
            for name, one in ended.items()]})
    return code
