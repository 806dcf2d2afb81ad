"""safelaunch plugins: which packages extend safelaunch here, and which of them are broken."""

from __future__ import annotations

import click

from safelaunch.base.plaintext import columns
from safelaunch.extensions.io import plugins
from safelaunch.extensions.plugins import GROUPS
from safelaunch.verbs.common import talk

HEAD = ("group", "name", "package", "version", "state")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/plugins.md.")
def command(as_json: bool) -> int:
    """List the plugins of this installation. Each is loaded once, in a process of its own."""
    rows = [(found, *plugins.state_of(found)) for group in GROUPS for found in plugins.list_plugins(group)]
    if as_json:
        talk.emit_json({"v": 1, "plugins": [
            {"group": found.group, "name": found.name, "distribution": found.distribution, "version": found.version,
             "state": state, "why": why} for found, state, why in rows]})
        return 0
    if not rows:
        talk.say("no package here extends safelaunch (docs/plugins.md says how one does)")
        return 0
    cells = [(found.group.partition(".")[2], found.name, found.distribution, found.version,
              f"{state}: {why}" if why else state) for found, state, why in rows]
    for line in columns([tuple(map(talk.clean, row)) for row in (HEAD, *cells)]):
        click.echo(line)
    return 0
