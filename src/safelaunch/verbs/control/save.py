"""safelaunch save: ask a training to save now and go on, and wait for its checkpoint."""

from __future__ import annotations

import click

from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.control import saving

VERSION = 1


@click.command()
@runs.run_argument
@runs.duration_option("--within", "within_s", help="The longest wait for the checkpoint (10m); else kill_switch.grace.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, within_s: float | None, as_json: bool) -> int:
    """Ask a training to save now and go on. Returns when its new checkpoint is complete, or nobody listens."""
    run = runs.load(which)
    answer = saving.save(run, within_s, talk.say)
    if as_json:
        found = answer.checkpoint
        talk.emit_json({"v": VERSION, "name": run.plan.name, "run_dir": str(run.dir), "outcome": answer.outcome,
                        "step": found.step if found else None, "path": found.path if found else None,
                        "sentence": answer.sentence})
    else:
        talk.say(talk.clean(answer.sentence))
    return answer.exit_code
