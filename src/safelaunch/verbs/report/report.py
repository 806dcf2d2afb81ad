"""safelaunch report: what became of a run, or of all runs of a month, as one HTML file that needs nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import click

from safelaunch.errors import UsageError
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.logs.logsince import parse_since
from safelaunch.verbs.report import monthfacts, monthpage, reportfacts, reportpage

A_MONTH = "30d"


@click.command()
@runs.run_argument
@click.option("-o", "--output", metavar="FILE", help="Where to write it (default: NAME-report.html; - is stdout).")
@click.option("--all", "of_all", is_flag=True, help="All your runs on one page: lost time by cause and node, advice.")
@click.option("--since", metavar="TIME", help=f"With --all: from then on (default: {A_MONTH}, which is 30 days ago).")
@click.option("--team", is_flag=True, help="With --all: also other users' runs that you may read.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/report.md.")
def command(which: str | None, output: str | None, of_all: bool, since: str | None, team: bool, as_json: bool) -> int:
    """Write what became of a run into one HTML file: steps, lost time, verdicts, curves."""
    if as_json and output is not None:
        raise UsageError("--json writes to stdout", hint="leave out -o, or redirect: safelaunch report --json > FILE")
    if not of_all and (team or since is not None):
        raise UsageError("--since and --team are of --all", hint="safelaunch report --all --since 30d --team")
    if of_all and which is not None:
        raise UsageError("--all is about all runs: name none")
    return _all(output, since or A_MONTH, team, as_json) if of_all else _one(which, output, as_json)


def _one(which: str | None, output: str | None, as_json: bool) -> int:
    run = runs.load(which)
    if as_json:
        talk.emit_json(reportfacts.gather(run, time.time()).public.to_json())
        return 0
    return _put(reportpage.render(run, time.time()), output, f"{run.plan.name}-report.html")


def _all(output: str | None, since: str, team: bool, as_json: bool) -> int:
    now = time.time()
    facts = monthfacts.gather(parse_since(since, now), now, team)
    if as_json:
        talk.emit_json(facts.to_json())
        return 0
    return _put(monthpage.render(facts), output, "all-report.html")


def _put(page: str, output: str | None, usual: str) -> int:
    if output == "-":
        click.echo(page)
        return 0
    path = Path(output if output is not None else usual)
    reportpage.store(path, page)
    talk.say(f"the report is in {path}")
    return 0
