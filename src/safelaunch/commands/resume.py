"""safelaunch resume: continue a run on hold."""

from __future__ import annotations

import click

from safelaunch.api import load
from safelaunch.commands.hold import tell
from safelaunch.views import runs


@click.command()
@runs.run_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, as_json: bool) -> int:
    """Continue a run that was put on hold."""
    run = load(which)
    return tell(run, run.resume(), as_json)
