"""safelaunch report: what became of a run, as one HTML file that needs nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import click

from safelaunch.errors import UsageError
from safelaunch.views import runs, talk


@click.command()
@runs.run_argument
@click.option("-o", "--output", metavar="FILE", help="Where to write it (default: NAME-report.html; - is stdout).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/report.md.")
def command(which: str | None, output: str | None, as_json: bool) -> int:
    """Write what became of a run into one HTML file: steps, lost time, verdicts, curves."""
    if as_json and output is not None:
        raise UsageError("--json writes to stdout", hint="leave out -o, or redirect: safelaunch report --json > FILE")
    run = runs.load(which)
    if as_json:
        from safelaunch.views.reportfacts import gather  # the page's templates are not needed

        talk.emit_json(gather(run, time.time()).public)
        return 0
    from safelaunch.views import reportpage

    page = reportpage.render(run, time.time())
    if output == "-":
        click.echo(page)
        return 0
    path = Path(output if output is not None else f"{run.plan.name}-report.html")
    reportpage.store(path, page)
    talk.say(f"the report is in {path}")
    return 0
