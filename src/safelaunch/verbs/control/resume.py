"""safelaunch resume: continue a run on hold."""

from __future__ import annotations

import click

from safelaunch.verbs.common import runs
from safelaunch.verbs.control import holding
from safelaunch.verbs.control.hold import tell


@click.command()
@runs.run_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, as_json: bool) -> int:
    """Continue a run that was put on hold."""
    run = runs.load(which)
    return tell(run, holding.resume(run), as_json)
