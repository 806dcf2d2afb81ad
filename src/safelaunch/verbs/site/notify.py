"""safelaunch notify: send a test message to those that a run, or a train.yaml, would tell."""

from __future__ import annotations

import click

from safelaunch.errors import UsageError
from safelaunch.verbs.common import talk
from safelaunch.verbs.site import trialmessage


@click.command()
@click.argument("what", metavar="[TRAIN.YAML or RUN]", required=False)
@click.option("--test", "is_test", is_flag=True, help="Send a test message.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(what: str | None, is_test: bool, as_json: bool) -> int:
    """Send a test message, and say what became of it for each target. Exit code 0 if all have taken it, else 1."""
    if not is_test:
        raise UsageError("say --test: this verb only sends a test message", hint="safelaunch notify --test train.yaml")
    plan = trialmessage.find_plan(what)
    results = trialmessage.send(plan)
    if as_json:
        talk.emit_json({"v": 1, "name": plan.name, "targets": [
            {"target": label, "sent": not trouble, "trouble": trouble or None} for label, trouble in results.items()]})
    else:
        for label, trouble in results.items():
            click.echo(talk.clean(f"{label}: {trouble or 'sent'}"))
    return 1 if any(results.values()) else 0
