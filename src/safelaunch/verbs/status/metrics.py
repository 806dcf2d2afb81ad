"""safelaunch metrics: the figures of runs in the text format of Prometheus."""

from __future__ import annotations

import sys

import click

from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.status import runmetrics as metrics


@click.command()
@click.argument("which", nargs=-1, metavar="[RUN]...", shell_complete=runs.complete_run)
@click.option("--textfile", metavar="DIR", help="Replace safelaunch-USER.prom in this folder, which node_exporter's "
                                                "textfile collector reads, and print nothing.")
def command(which: tuple[str, ...], textfile: str | None) -> int:
    """Print the figures of runs for Prometheus; without RUN of all of yours that go on or ended within a day."""
    text = metrics.collect(which, lambda text: talk.say(talk.clean(text)))
    if textfile is None:
        sys.stdout.write(text)
    else:
        metrics.store(textfile, text)
    return 0
