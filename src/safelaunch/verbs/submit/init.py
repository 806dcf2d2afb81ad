"""safelaunch init: a first train.yaml, from nothing or from an sbatch script."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import click

from safelaunch.base.plaintext import clean
from safelaunch.config.io.bashtext import syntax_fault
from safelaunch.config.io.configfiles import read_text
from safelaunch.config.sbatchscript import draft_from_script
from safelaunch.config.schema import train_schema
from safelaunch.config.starter import EXAMPLE, SCHEMA_FILE, Draft, render_draft
from safelaunch.errors import UsageError


@click.command()
@click.option("--from", "script", type=str, metavar="JOB.SLURM", help="An sbatch script to start from.")
@click.option("-o", "--output", default="train.yaml", show_default=True, help="The file to write; never overwritten.")
def command(script: str | None, output: str) -> int:
    """Write a first train.yaml with comments, and its schema for editors; edit it, then run `safelaunch check`."""
    draft = EXAMPLE if script is None else _read_script(script, Path(output))
    try:
        with Path(output).open("x", encoding="utf-8") as stream:
            stream.write(render_draft(draft))
    except FileExistsError as error:
        raise UsageError(
            f"{output} exists already, and is left as it is", hint="choose another name: -o FILE"
        ) from error
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    _write_schema(Path(output).parent / SCHEMA_FILE)
    for note in draft.notes:
        click.echo(clean(note), err=True)
    click.echo(clean(f"wrote {output}; next: edit it, then safelaunch check {output}"), err=True)
    return 0


def _write_schema(path: Path) -> None:
    """Beside the draft, whose first line names it; an editor that finds none only complains."""
    with suppress(OSError), path.open("x", encoding="utf-8") as stream:
        json.dump(train_schema(), stream, ensure_ascii=False)


def _read_script(script: str, output: Path) -> Draft:
    try:
        text = read_text(script)
    except OSError as error:
        raise UsageError(f"{script} cannot be read: {error.strerror}") from error
    path = os.path.relpath(script, output.parent) if not script.startswith("/") else script
    return draft_from_script(text, script, path, syntax_fault(text))
