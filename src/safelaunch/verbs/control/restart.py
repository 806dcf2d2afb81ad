"""safelaunch restart: end the running attempt, and start the next one now; or end the pause before it."""

from __future__ import annotations

import click

from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.control import restarting

VERSION = 1


@click.command()
@runs.run_argument
@click.option("--now", is_flag=True, help="End the attempt at once: the training gets no time to save.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, now: bool, as_json: bool) -> int:
    """Start a run's next attempt now, from its newest checkpoint: after an edit of its code, or instead of a pause."""
    run = runs.load(which)
    answer = restarting.restart(run, now)
    if as_json:
        talk.emit_json({"v": VERSION, "name": run.plan.name, "run_dir": str(run.dir), "attempt": answer.attempt,
                        "seen": answer.is_seen, "sentence": answer.sentence})
    else:
        talk.say(talk.clean(answer.sentence))
    return answer.exit_code
