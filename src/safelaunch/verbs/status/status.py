"""safelaunch status: how a run is doing, why, and what to type next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import click

from safelaunch.errors import RunFolderError, UsageError
from safelaunch.run.io.runfolder import Run
from safelaunch.status.overview import Overview
from safelaunch.status.rows import LEAST_WANTED, rows, without
from safelaunch.verbs.common import runs, talk, terminal
from safelaunch.verbs.common.speech import speech_at
from safelaunch.verbs.overview import livecheckpoint, runlist, sharedqueue
from safelaunch.verbs.overview.overview import overview
from safelaunch.verbs.overview.runlist import Listing

P = ParamSpec("P")
T = TypeVar("T")

REFRESH_S = 2.0
ASK_EVERY_S = 60.0    # one query for all, at least 60 s apart: a courtesy to slurmctld
LOOK_EVERY_S = 15.0   # at the checkpoints, of which a parallel filesystem may have hundreds
LOOK_SHARE = 0.01     # of the time goes to looks at a folder that answers quickly: the new checkpoint is seen at once


@click.command()
@runs.run_argument
@click.option("--all", "is_all", is_flag=True, help="A table of all runs, also of those that ended long ago.")
@click.option("--team", "with_team", is_flag=True, help="A table with other people's runs that you may read.")
@click.option("--watch", is_flag=True, help="Refresh until the run has ended.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, is_all: bool, with_team: bool, watch: bool, as_json: bool) -> int:
    """Show how a run or a sweep is doing, and what to type next; without RUN a table of all your runs.

    The table holds those that go on, and those that ended within a day. Where that is only the newest run in this
    folder, the run itself is shown.
    """
    if which is not None and (points := runs.find_sweep(which)):
        from safelaunch.verbs.status import sweeps

        if watch and not as_json:
            return sweeps.watch(points, REFRESH_S, every(ASK_EVERY_S, runlist.ask_slurm))
        return sweeps.status(points, as_json)
    if which is not None and (is_all or with_team):
        raise UsageError("--all and --team show a table and take no RUN", hint="leave RUN out")
    if which is None:
        listing = runlist.collect(is_all, with_team)
        if is_all or with_team or as_json or _has_others(listing):
            return _show_table(listing, is_all, with_team, watch and not as_json, as_json)
    if watch and not as_json:
        return _watch(runs.load(which))
    run = runs.load(which)
    seen = overview(run, runs.ask_scheduler(run, with_times=True), time.time())
    if as_json:
        talk.emit_json(seen.to_json())
    else:
        click.echo(_for_person(seen) if talk.is_for_person() else plain(seen))
    return 0


def _has_others(listing: Listing) -> bool:
    """Whether there is more to show than the newest run in this folder."""
    here = str(runs.newest_here()) if len(listing.briefs) == 1 else None
    return bool(listing.silent) or any(one.run_dir != here for one in listing.briefs)


def _show_table(listing: Listing, is_all: bool, with_team: bool, watch: bool, as_json: bool) -> int:
    if as_json:
        talk.emit_json(runlist.as_json(listing))
        return 0
    if not watch or not talk.is_for_person():
        _tell(listing, with_team)
        return 0
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    ask = every(ASK_EVERY_S, sharedqueue.ask)
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            notes = runlist.notes(listing)
            room = live.console.size.height - len(notes) - 1
            lines = [terminal.coloured(*line) for line in runlist.text(listing, terminal.width(), with_team, room)]
            live.update(Text.from_ansi("\n".join([*lines, *notes])), refresh=True)
            time.sleep(REFRESH_S)
            listing = runlist.collect(is_all, with_team, ask)


def _tell(listing: Listing, with_team: bool) -> None:
    lines = runlist.text(listing, terminal.width() if talk.is_for_person() else None, with_team)
    for line, style in lines if listing.briefs else []:
        click.echo(terminal.coloured(line, style))
    for note in runlist.notes(listing):
        talk.say(note)
    if not listing.briefs:
        talk.say("no run is known" if not listing.silent else "no other run is known")


def plain(status: Overview) -> str:
    """The rows as text without colours or folding, for files, pipes and programs."""
    return "\n".join(terminal.lines(_rows(status)))


def _rows(status: Overview) -> Iterator[terminal.Row]:
    return rows(status, speech_at(status.now_t))


def _for_person(status: Overview, most_lines: int | None = None) -> str:
    """For a terminal; of more than `most_lines` some are left out, those that are wanted least."""
    shown = list(_rows(status))
    for label in LEAST_WANTED:
        if most_lines is None or len(terminal.lines(shown, terminal.width())) <= most_lines:
            break
        shown = without(shown, label)
    return "\n".join(terminal.lines(shown, terminal.width(), terminal.has_colour()))


def _watch(run: Run) -> int:
    if not talk.is_for_person():
        for seen in _views(run):
            click.echo(plain(seen) + "\n")
        return 0
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        for seen in _views(run):
            height = None if seen.ended is not None else live.console.size.height   # what is over may scroll
            live.update(Text.from_ansi(_for_person(seen, height)), refresh=True)
    return 0


def _views(run: Run) -> Iterator[Overview]:
    """The run's object every REFRESH_S, until it has ended; on a frozen folder the last one stays."""
    ask, look = every(ASK_EVERY_S, runs.ask_scheduler), every(LOOK_EVERY_S, livecheckpoint.look, LOOK_SHARE)
    while True:
        word = ask(run, with_times=True, mine=sharedqueue.ask)
        try:
            runs.ask(lambda: (run.dir / "run.json").stat().st_size, str(run.dir))
        except RunFolderError as error:
            talk.say(error.message)
            time.sleep(REFRESH_S)
            continue
        seen = overview(run, word, time.time(), look)
        yield seen
        if seen.ended is not None:
            return
        time.sleep(REFRESH_S)


def every(seconds: float, ask: Callable[P, T], share: float = 0.0) -> Callable[P, T]:
    """The same function, asked again only when its last answer is so old; with a `share` of the time for it, sooner."""
    answers: list[tuple[float, T]] = []

    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        begin_s = time.monotonic()
        if not answers or begin_s >= answers[0][0]:
            answer = ask(*args, **kwargs)
            took_s = time.monotonic() - begin_s
            answers[:] = [(begin_s + (min(seconds, took_s / share) if share else seconds), answer)]
        return answers[0][1]

    return asked
