"""safelaunch schema: the JSON Schema of train.yaml, for editors."""

from __future__ import annotations

import json

import click

from safelaunch.config.schema import train_schema


@click.command()
def command() -> int:
    """Print the JSON Schema (draft 2020-12) of train.yaml."""
    click.echo(json.dumps(train_schema(), indent=2, ensure_ascii=False))
    return 0
