"""safelaunch change: another time limit or partition for the later jobs of a run."""

from __future__ import annotations

import click

from safelaunch.errors import UsageError
from safelaunch.script.laterjobs import KEYS
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.control import changing

VERSION = 1


@click.command()
@click.argument("words", metavar="[RUN] [KEY=VALUE]...", nargs=-1, shell_complete=runs.complete_run)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(words: tuple[str, ...], as_json: bool) -> int:
    """Let the later jobs of a run have another time limit, partition, qos or account (time=2:00:00 partition=long).

    Without KEY=VALUE it says what is changed. An empty value (time=) takes a change back.
    """
    named = [word for word in words if "=" not in word]
    if len(named) > 1:
        raise UsageError(f"{' '.join(named)}: one run, and {', '.join(f'{key}=…' for key in KEYS)}")
    run = runs.load(named[0] if named else None)
    answer = changing.change(run, tuple(word for word in words if "=" in word))
    if as_json:
        talk.emit_json({"v": VERSION, "name": run.plan.name, "run_dir": str(run.dir), "changes": answer.changes,
                        "jobs": [{"id": id, "state": "left" if why else "changed", **({"why": why} if why else {})}
                                 for id, why in answer.jobs],
                        "trouble": answer.trouble, "sentence": answer.sentence})
    else:
        talk.say(talk.clean(answer.sentence))
    return answer.exit_code
