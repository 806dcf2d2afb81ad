"""safelaunch hold: no new attempt of a run starts until `safelaunch resume`; one that runs goes on untouched."""

from __future__ import annotations

import click

from safelaunch.adapters.runfolder import Run
from safelaunch.core.model import DONE, REFUSED, UNREACHABLE
from safelaunch.core.state import State
from safelaunch.views import controls, queuehold, runs, talk
from safelaunch.views.controls import Touched
from safelaunch.views.queuehold import Turned

VERSION = 1


@click.command()
@runs.run_argument
@click.option("--why", metavar="TEXT", default="", help="A reason for those who find the run on hold.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, why: str, as_json: bool) -> int:
    """Start no new attempt of a run until `safelaunch resume`. A running attempt goes on untouched."""
    run = runs.load(which)
    state = run.state()
    if state.ended is not None:
        return answer(run, False, None, Turned(), f"nothing to hold: {runs.describe_end(state.ended)}", as_json)
    if state.preserving_until is not None:
        kept = f"its nodes are kept until {talk.clock(state.preserving_until)}, then it ends"
        return answer(run, False, None, Turned(), f"nothing to hold: the run has failed for good; {kept}", as_json)
    touched = controls.touch(run.dir / "control" / "hold", why)
    if touched.is_new and controls.is_mine(run):
        writer = controls.book(run).writer
        writer.write(writer.event("decision", row="hold", action="hold",
                                  why=f"{touched.who} put the run on hold{f': {why}' if why else ''}"))
    turned = Turned() if run.plan.cluster == "local" else queuehold.hold_jobs(run)
    return answer(run, True, touched, turned, _announce(run, state, touched, turned), as_json)


def answer(run: Run, held: bool, touched: Touched | None, turned: Turned, sentence: str, as_json: bool) -> int:
    """Say it, and the exit code: what Slurm did not do or did not answer to is no success."""
    if as_json:
        talk.emit_json({
            "v": VERSION, "name": run.plan.name, "run_dir": str(run.dir), "held": held,
            "who": touched.who if touched else None, "t": round(touched.t, 3) if touched else None,
            "jobs": [*({"id": job, "state": "changed"} for job in turned.done),
                     *({"id": job, "state": "held before"} for job in turned.before),
                     *({"id": job, "state": "left", "why": why} for job, why in turned.left)],
            "trouble": turned.trouble or turned.refused, "sentence": sentence})
    else:
        talk.say(talk.clean(sentence))
    return UNREACHABLE if turned.trouble else REFUSED if turned.refused else DONE


def _announce(run: Run, state: State, touched: Touched, turned: Turned) -> str:
    """What will happen now."""
    begun = "is on hold" if touched.is_new else f"is on hold already, since {talk.clock(touched.t)} by {touched.who}"
    parts = [f"{run.plan.name} {begun}: {_what_goes_on(run, state)}"]
    held = (*turned.done, *turned.before)
    if held:
        parts.append(f"job {', '.join(held)} stays in the queue, held")
    parts += [f"job {job} is left as it is: {why}" for job, why in turned.left]
    if turned.trouble:
        parts.append(f"Slurm does not answer ({turned.trouble}), so a queued job may start; its supervisor sees the "
                     "hold and starts nothing. To hold the job itself, repeat this")
    if turned.refused:
        parts.append(f"the queued job could not be held ({turned.refused}): it may start, and its supervisor starts "
                     "nothing")
    return f"{'; '.join(parts)}. To go on: safelaunch resume {run.dir}"


def _what_goes_on(run: Run, state: State) -> str:
    attempt = state.attempt
    if attempt is not None and attempt.ended is None:
        return f"attempt {attempt.number} goes on untouched, and nothing new is started after it"
    if run.plan.cluster == "local":
        return "nothing new is started; its supervisor waits"
    if state.job is not None and state.job.started_t is not None and not state.job.over:
        return "nothing new is started; the nodes go back, and the next job waits"
    return "nothing is started"
