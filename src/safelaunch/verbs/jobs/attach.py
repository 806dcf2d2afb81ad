"""safelaunch attach: looks after a job of Slurm that safelaunch did not submit."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from safelaunch.config.io.configfiles import read_mapping
from safelaunch.errors import UsageError
from safelaunch.run import plan as plans
from safelaunch.slurm.io import slurm
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.jobs import attaching


@click.command()
@click.argument("job", metavar="JOBID")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--log", "logs", multiple=True, metavar="FILE", type=click.Path(path_type=Path),
              help="Its output, where Slurm does not name it; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object instead of each line.")
def command(job: str, overrides: tuple[str, ...], logs: tuple[Path, ...], as_json: bool) -> int:
    """Watch a job that safelaunch did not submit: its steps, hangs, and why it ended. It changes nothing.

    KEY=VALUE are keys of train.yaml: progress.step, hang.no_progress, notify.to, and so on.
    """
    _refuse_run(job)
    plan = plans.of_settings(read_mapping({"command": "true", "name": "attached"}, overrides, ())[0].settings, "")
    attached = attaching.Attachment(job, plan, logs, slurm.outside_job(os.environ))
    talk.say(f"watching job {job} by {', '.join(map(str, attached.logs))}; Ctrl-C ends the watch, and not the job")
    code = 0
    for note in attached.follow():
        text = talk.clean(note.text)
        if as_json:
            talk.emit_json({"v": 1, "t": round(time.time(), 3), "kind": note.kind, "job": job, "text": text})
        else:
            click.echo(f"[{talk.stamp(time.time())}] {note.kind.upper()}: {text}")
        for failed in attached.tell(note):
            talk.say(talk.clean(failed))
        code = note.code
    return code


def _refuse_run(job: str) -> None:
    if not job.replace("_", "").replace("+", "").isdigit():
        raise UsageError(f"{job} is no job id", hint="of a run: safelaunch status --watch RUN")
    try:
        run = runs.load(job)
    except UsageError:
        return
    raise UsageError(f"job {job} is one of the run {run.plan.name}, which has a supervisor",
                     hint=f"safelaunch status --watch {run.dir}")
