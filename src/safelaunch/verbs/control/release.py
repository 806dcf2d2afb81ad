"""safelaunch release: give back nodes that are kept for inspection."""

from __future__ import annotations

import click

from safelaunch.run.io.runfolder import Run
from safelaunch.verbs.common import controls, runs, talk


@click.command()
@runs.run_argument
def command(which: str | None) -> int:
    """Give back the nodes that a failed run keeps for inspection."""
    run = runs.load(which)
    talk.say(talk.clean(release(run)))
    return 0


def release(run: Run) -> str:
    """What was done, in one sentence. A request is made only when there is something to release: it would outlive the
    day, and the next failure's site would not be kept.
    """
    state = run.state()
    if state.ended is not None:
        return f"no nodes are kept: {runs.describe_end(state.ended)}"
    if state.preserving_until is None:
        return (f"no nodes are kept: the run is {state.name}. "
                f"A job without a supervisor waits for {run.dir / 'control' / 'release'}: touch it")
    touched = controls.touch(run.dir / "control" / "release")
    until = talk.moment(state.preserving_until)
    if not touched.is_new:
        return f"{touched.who} has asked for that already, at {talk.moment(touched.t)}"
    return f"the nodes, which were to be kept until {until}, are given back within seconds, and the run ends"
