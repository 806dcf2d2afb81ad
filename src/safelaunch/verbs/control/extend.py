"""safelaunch extend: keep the nodes of a failed run for longer."""

from __future__ import annotations

import time

import click

from safelaunch.errors import UsageError
from safelaunch.run.io.runfolder import Run
from safelaunch.verbs.common import controls, runs, talk

VERSION = 1


@click.command()
@runs.run_argument
@runs.duration_option("--for", "for_s", help="From now on: 30m, 2h …; by default preserve_site.for again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, for_s: float | None, as_json: bool) -> int:
    """Keep the nodes of a failed run for longer, for people to look at."""
    run = runs.load(which)
    until_t, sentence = extend(run, for_s, time.time())
    if as_json:
        talk.emit_json({"v": VERSION, "name": run.plan.name, "run_dir": str(run.dir), "until_t": round(until_t, 3),
                        "sentence": sentence})
    else:
        talk.say(talk.clean(sentence))
    return 0


def extend(run: Run, for_s: float | None, now: float) -> tuple[float, str]:
    """Until when (epoch s) the nodes are kept now, and one sentence on it. They are kept for `preserve_site.for` after
    the request's own time (decide). So `--for` makes a request with a time before or after now.
    """
    kept_t = _kept_until(run)
    path, usual_s = run.dir / "control" / "extend", run.plan.preserve.for_s
    before = controls.look(path)
    if before is not None:
        kept_t = max(kept_t, before.t + usual_s)
    until_t = now + (usual_s if for_s is None else for_s)
    if until_t <= kept_t:
        return kept_t, (f"the nodes are kept until {talk.moment(kept_t)} already, which is longer. To give them back: "
                        f"safelaunch release {run.dir}")
    controls.renew(path, until_t - usual_s)
    _kept_until(run)   # a site that was given back meanwhile must not be called kept
    return until_t, (f"the nodes are kept until {talk.moment(until_t)}, or until the job's time limit if that comes "
                     f"first. To look: safelaunch shell {run.dir} NODE; to give them back: "
                     f"safelaunch release {run.dir}")


def _kept_until(run: Run) -> float:
    """As the journal says; raises UsageError where no nodes are kept."""
    state = run.state()
    if state.ended is not None:
        raise UsageError(f"no nodes are kept: {runs.describe_end(state.ended)}",
                         hint=f"what happened: safelaunch events {run.dir}")
    if state.preserving_until is None:
        raise UsageError(f"no nodes are kept: the run is {state.name}",
                         hint=f"nodes are kept after a failure by preserve_site in train.yaml; see safelaunch status "
                              f"{run.dir}")
    return state.preserving_until
