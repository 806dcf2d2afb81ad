"""safelaunch hold: no new attempt of a run starts until `safelaunch resume`; a running one goes on."""

from __future__ import annotations

import click

from safelaunch.run.io.runfolder import Run
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.control import holding
from safelaunch.verbs.control.holding import HoldAnswer

VERSION = 1


@click.command()
@runs.run_argument
@click.option("--why", metavar="TEXT", default="", help="The reason, for other people.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, why: str, as_json: bool) -> int:
    """Start no new attempt of a run until `safelaunch resume`. A running attempt goes on."""
    run = runs.load(which)
    return tell(run, holding.hold(run, why), as_json)


def tell(run: Run, answer: HoldAnswer, as_json: bool) -> int:
    """Say it, and the exit code."""
    request, jobs = answer.request, answer.jobs
    if as_json:
        talk.emit_json({
            "v": VERSION, "name": run.plan.name, "run_dir": str(run.dir), "held": answer.held,
            "who": request.who if request else None, "t": round(request.t, 3) if request else None,
            "jobs": [*({"id": job, "state": "changed"} for job in jobs.done),
                     *({"id": job, "state": "held before"} for job in jobs.before),
                     *({"id": job, "state": "left", "why": why} for job, why in jobs.left)],
            "trouble": jobs.trouble or jobs.refused, "sentence": answer.sentence})
    else:
        talk.say(talk.clean(answer.sentence))
    return answer.exit_code
