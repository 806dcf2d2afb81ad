"""safelaunch doctor: what at this site can harm a run, and what to set."""

from __future__ import annotations

from pathlib import Path

import click

from safelaunch.errors import UsageError
from safelaunch.verbs.common import talk
from safelaunch.verbs.site.doctorrows import DoctorQuestion, examine, show
from safelaunch.verbs.site.doctorrows import as_json as object_of


@click.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[FOLDER] [-- SBATCH_FLAGS]")
@click.option("--partition", metavar="NAME", help="The partition that is meant (default: Slurm's own).")
@click.option("--group", metavar="GROUP", help="Can this group get to runs in FOLDER?")
@click.option("--job", "with_job", is_flag=True, help="Look at two nodes as well, in a small job.")
@click.option("--all", "with_all", is_flag=True, help="Also show what is well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/doctor.md.")
def command(words: tuple[str, ...], partition: str | None, group: str | None, with_job: bool, with_all: bool,
            as_json: bool) -> int:
    """Say what at this site can harm a run, and what to set.

    FOLDER is where run folders will be (default: here). Exit code 13: something is not safe.
    """
    first = 1 if words and not words[0].startswith("-") else 0
    wrong = next((word for word in words[first:] if not word.startswith("-")), None)
    if wrong is not None:
        raise UsageError(f"{wrong!r} is no option of sbatch", hint="write options as one word: --account=abc")
    named = [word.partition("=")[2] for word in words[first:] if word.startswith("--partition=")]
    folder = str(Path(words[0] if first else ".").absolute())
    question = DoctorQuestion(folder, named[-1] if named else partition, group, with_job, words[first:])
    found = examine(question, talk.hush if as_json else talk.say)
    if as_json:
        talk.emit_json(object_of(question, found))
        return found.exit_code
    for line in show(question, found, with_all):
        click.echo(line)
    if not with_job and found.slurm:
        talk.say("the nodes were not looked at: add --job")
    return found.exit_code
