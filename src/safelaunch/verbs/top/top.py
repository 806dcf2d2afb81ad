"""safelaunch top: all runs and what each of them does, on one screen that stays."""

from __future__ import annotations

import click

from safelaunch.errors import UsageError
from safelaunch.verbs.common import talk


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Also runs that ended long ago.")
@click.option("--team", "with_team", is_flag=True, help="Also other people's runs that you may read.")
def command(is_all: bool, with_team: bool) -> int:
    """Show your runs on a screen that stays: status, log, events, nodes, cause and stacks; stop, hold and release."""
    if not talk.is_for_person():
        raise UsageError("top needs a terminal", hint="for a program or a file: safelaunch status --all [--json]")
    try:
        from safelaunch.verbs.top.topscreen import TopScreen
    except ImportError as error:
        raise UsageError("top needs textual: pip install 'safelaunch[tui]'",
                         hint="without it: safelaunch status --watch") from error
    TopScreen(is_all, with_team).run()
    return 0
