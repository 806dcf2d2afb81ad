"""safelaunch resume: a run on hold goes on."""

from __future__ import annotations

import os

import click

from safelaunch.adapters import runfolder
from safelaunch.adapters.runfolder import Run
from safelaunch.commands.hold import answer
from safelaunch.core.state import State
from safelaunch.errors import UsageError
from safelaunch.views import controls, queuehold, runs
from safelaunch.views.controls import Touched
from safelaunch.views.queuehold import Turned


@click.command()
@runs.run_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, as_json: bool) -> int:
    """Let a run go on that was put on hold."""
    run = runs.load(which)
    state = run.state()
    if state.ended is not None:
        raise UsageError(f"nothing goes on: {runs.describe_end(state.ended)}",
                         hint="a new run from the newest checkpoint: safelaunch submit train.yaml")
    # The file first: a job that is released before would start, see the hold, and hand the run over once more.
    removed = controls.remove(run.dir / "control" / "hold")
    if removed is not None and controls.is_mine(run):
        writer = controls.book(run).writer
        me = runfolder.name_of(os.getuid())
        writer.write(writer.event("decision", row="resume", action="resume",
                                  why=f"{me} lets the run go on, which {removed.who} had put on hold"))
    turned = Turned() if run.plan.cluster == "local" else queuehold.release_jobs(run)
    return answer(run, False, removed, turned, _announce(run, state, removed, turned), as_json)


def _announce(run: Run, state: State, removed: Touched | None, turned: Turned) -> str:
    """What will happen now."""
    name = run.plan.name
    if removed is None and not turned.done:
        parts = [f"{name} is not on hold, as far as {run.dir / 'control'} says"]
    else:
        parts = [f"{name} goes on" + (f", which {removed.who} had put on hold" if removed else "")]
    if turned.done:
        parts.append(f"job {', '.join(turned.done)} is released and starts when Slurm has nodes for it")
    elif removed is not None and state.attempt is not None and state.attempt.ended is None:
        parts.append(f"attempt {state.attempt.number} runs, and others may follow it")
    parts += [f"job {job} is left as it is: {why}" for job, why in turned.left]
    if turned.trouble:
        parts.append(f"Slurm does not answer ({turned.trouble}): whether a job of it is held is unknown; repeat this")
    if turned.refused:
        parts.append(f"the held job could not be released: {turned.refused}")
    if turned.knows_none:
        parts.append("but Slurm knows no job of it; to queue one: safelaunch watch --once")
    return "; ".join(parts)
