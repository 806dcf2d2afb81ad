"""safelaunch events: what happened to a run, and why, out of its journal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable

import click

from safelaunch.base.model import Event
from safelaunch.run.journal import render
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.common.eventwords import describe
from safelaunch.verbs.logs import eventstream

NARROW = 100    # columns: below that a folded line goes on near the left edge, not below its sentence


@click.command()
@runs.run_argument
@click.option("-f", "--follow", is_flag=True, help="Follow until the run has ended.")
@click.option("--all", "with_all", is_flag=True, help="Every line, with the supervisors' own: claims, steps, fences.")
@click.option("--json", "as_json", is_flag=True, help="The journal's lines themselves, in order.")
def command(which: str | None, follow: bool, with_all: bool, as_json: bool) -> int:
    """Show what happened to a run: time, host, what."""
    run = runs.load(which)
    for events in eventstream.stream(run, follow, with_all or as_json, lambda text: talk.say(talk.clean(text))):
        _show(events, as_json)
    return 0


def _show(events: Iterable[Event], as_json: bool) -> None:
    if as_json:
        sys.stdout.write("".join(render(event).decode() for event in events))
    else:
        width = shutil.get_terminal_size().columns if talk.is_for_person() else None
        sys.stdout.write("".join(f"{fold_line(event, width)}\n" for event in events))
    sys.stdout.flush()


def fold_line(event: Event, width: int | None) -> str:
    """Time, host and sentence; folded to a terminal's width, None = as long as it is."""
    host = f"{talk.clean(event.host):<10}"
    if width is None:   # a program may sort and cut the lines
        return f"{talk.clock(event.t)}  {host}  {describe(event)}"
    head = f"{talk.moment(event.t)}  {host}  "
    return textwrap.fill(head + describe(event), max(width, 40), break_on_hyphens=False,
                         subsequent_indent=" " * (len(head) if width >= NARROW else 4))
