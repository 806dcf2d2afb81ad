"""safelaunch submit: sbatch for a training that is to survive."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from safelaunch.base.plaintext import clean
from safelaunch.config.debugpresets import debug_overrides, debug_variables
from safelaunch.config.io.configfiles import read_each
from safelaunch.config.notelines import note_lines
from safelaunch.config.resolve import Resolved
from safelaunch.launch.settings import Settings
from safelaunch.run.io.clustername import ClusterName, FederatedName
from safelaunch.run.plan import Plan
from safelaunch.script import script
from safelaunch.slurm.io import slurm
from safelaunch.slurm.via import HERE
from safelaunch.verbs.common import talk
from safelaunch.verbs.submit import submitting, sweeping
from safelaunch.verbs.submit.submitting import Submitted, Waits
from safelaunch.verbs.submit.sweeping import SubmittedSweep
from safelaunch.verbs.submit.trainfile import TrainFileCommand, debug_option, split_rest, train_file_arguments

if TYPE_CHECKING:
    from safelaunch.run.io.provenance import GitFacts
    from safelaunch.verbs.submit.firststart import FirstStart


@click.command(cls=TrainFileCommand)
@train_file_arguments
@debug_option
@click.option("--dry-run", is_flag=True, help="Print the script, and what would be sent; submit nothing.")
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait until the run has ended, and exit with its code.")
@click.option("--here", is_flag=True, help="Train in the job of this shell (salloc), in the foreground.")
@click.option("--after", "after", metavar="RUN", multiple=True,
              help="Start once this run or sweep has ended well; may be given several times.")
@click.option("--after-any", "after_any", metavar="RUN", multiple=True, help="... has ended, well or not.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a line.")
@click.option("-y", "--yes", is_flag=True, help="On a terminal: show no plan and ask nothing, as in a script.")
def command(
    file: str, rest: tuple[str, ...], debug: tuple[str, ...], dry_run: bool, wait_for_end: bool, here: bool,
    after: tuple[str, ...], after_any: tuple[str, ...], as_json: bool, yes: bool
) -> int:
    """Submit a training instead of sbatch, and keep it alive; of a sweep one run for each point."""
    overrides, raw_sbatch = split_rest(rest)
    overrides = [*debug_overrides(debug), *overrides]
    for one in debug_variables(debug):
        _say(f"debug: {one.name}={one.value}: {one.why}")

    def read() -> list[Resolved]:
        found = read_each(file, overrides, raw_sbatch)
        if here:
            found = _settle_here(found)
        if found[0].notes:
            for note in note_lines(found[0].notes, file):
                _say(note)
        return found

    if dry_run:
        return _show(read())
    streams = (sys.stdin, sys.stdout, sys.stderr)   # None: closed, as a daemon does
    asks = not (yes or as_json or here) and all(stream is not None and stream.isatty() for stream in streams)
    waits = partial(_waits_for, after, after_any) if after or after_any else None
    submitted = sweeping.submit(read, _say, _agree if asks else None, waits)
    if isinstance(submitted, SubmittedSweep):
        return _report_sweep(submitted, as_json, wait_for_end)
    _report(submitted, as_json)
    if here:
        from safelaunch.verbs.submit.here import train

        return train(submitted.run, not as_json, _say)
    if "SLURM_JOB_ID" in os.environ and submitted.run.plan.cluster == "slurm":
        _say(f"  this shell is inside of job {os.environ['SLURM_JOB_ID']}, and the run gets another. To train in this "
             f"one: safelaunch submit --here {file}")
    if wait_for_end:
        from safelaunch.verbs.control import wait

        return wait.wait_for(submitted.run, None)
    return 0


def _waits_for(ok: Sequence[str], any_end: Sequence[str], settings: Settings) -> Waits:
    from safelaunch.verbs.submit import following  # few runs wait for others

    return following.waits_for(ok, any_end, settings)


def _settle_here(found: list[Resolved]) -> list[Resolved]:
    from safelaunch.verbs.submit import here  # few runs live in the job of a shell

    settled = here.settle(found, os.environ)
    here.tell_limits(settled.settings, _say)
    return [settled]


def _agree(resolved: Resolved, plan: Plan, text: str, git: GitFacts, cluster: str) -> None:
    """Show a person what is to be sent, and ask; raises click.Abort for a no."""
    from safelaunch.verbs.submit import submitplan
    from safelaunch.verbs.submit.check import summarise  # what a script has no time for

    for line in submitplan.lines(plan, text, summarise(resolved.settings), str(Path.cwd()), git, cluster):
        click.echo(line, err=True)
    if not click.confirm("submit it?", default=True, err=True):
        _say("nothing was submitted")
        raise click.Abort


def _show(points: list[Resolved]) -> int:
    """--dry-run: the script on stdout, the command on stderr; `RUN` stands for the id that submit chooses. Of a sweep
    those of its first point.
    """
    resolved = points[0]
    if resolved.point is not None:
        for one in points:
            _say(f"point {one.point.number if one.point else 1}: {one.settings.name}")
    settings, cluster = submitting.choose_cluster(resolved.settings, _say), ""
    if settings.cluster != "local":
        asked, federated = ClusterName(os.environ), FederatedName(os.environ)
        settings = submitting.stay_on_cluster(settings, federated, _say)
        cluster = asked.name(submitting.CLUSTER_S)
    plan, text = submitting.render(settings, "RUN", cluster)
    sys.stdout.write(text)
    folder = submitting.free_folder(Path(plan.run_dir))[0]
    send = ["bash", str(folder / "job.sbatch")] if plan.cluster == "local" else list(
        slurm.sbatch(str(folder / "job.sbatch"), script.first_job_options(plan)))
    sys.stderr.write(f"would make {folder}, write this script to it and run: {' '.join(send)}\n")
    start = _start_of(plan, str(Path.cwd()))
    for line in start.lines if start else ():
        _say(line)
    return 0


def _report(submitted: Submitted, as_json: bool) -> None:
    run, job = submitted.run, submitted.job
    cwd = str(run.meta.get("cwd", "/"))
    if as_json:
        start = _start_of(run.plan, cwd)
        click.echo(json.dumps({"v": 1, "job": job, "run_id": run.plan.run_id, "name": run.plan.name,
                               "cluster": run.plan.cluster, "cluster_name": run.cluster or None,
                               "run_dir": str(run.dir), "resume": start.public if start else None}))
        return
    if run.plan.cluster == HERE:
        _say(f"the run trains in this shell's job {job}; Ctrl-C asks it to save and end")
    else:
        click.echo(f"Submitted batch job {job}")
    _say(f"run {run.plan.name} ({run.plan.run_id}) in {run.dir}")
    start = _start_of(run.plan, cwd)
    for line in start.lines if start else ():
        _say(f"  {line}")
    _say(f"  see it: safelaunch status {run.plan.name}   its log: safelaunch logs -f {run.plan.name}   "
         f"end it: touch {run.plan.kill_file}")


def _report_sweep(sweep: SubmittedSweep, as_json: bool, wait_for_end: bool) -> int:
    done = [sweep.runs[number] for number in sorted(sweep.runs)]
    if as_json:
        talk.emit_json({"v": 1, "sweep": sweep.name, "sweep_id": sweep.id, "of": sweep.of, "runs": [
            {"point": number, "job": one.job or None, "run_id": one.run.plan.run_id, "name": one.run.plan.name,
             "run_dir": str(one.run.dir)} for number, one in sorted(sweep.runs.items())]})
    else:
        click.echo("\n".join(f"Submitted batch job {one.job}   {one.run.plan.name}" for one in done))
        _say(f"sweep {sweep.name} ({sweep.id}): {len(done)} of {sweep.of} runs")
        _say(f"  see it: safelaunch status {sweep.name}   why some failed: safelaunch why {sweep.name}   "
             f"end it: safelaunch stop {sweep.name}")
    if sweep.failed is not None:
        talk.say(f"{sweep.of - len(done)} runs are not submitted: {sweep.failed.message}")
        _say("  the same `safelaunch submit` goes on with them")
        return sweep.failed.exit_code
    if not wait_for_end:
        return 0
    from safelaunch.verbs.common.runs import find_sweep
    from safelaunch.verbs.status import sweeps  # 50 ms of imports: as long as 15 sbatch take

    return sweeps.wait(find_sweep(sweep.id), None, False)


def _start_of(plan: Plan, cwd: str) -> FirstStart | None:
    """Where the first attempt will start; None where the run does not resume."""
    if plan.resume.dir is None:
        return None
    from safelaunch.verbs.submit import firststart  # what a run without resume does not need

    return firststart.look(plan, cwd)


def _say(text: str) -> None:
    click.echo(clean(text), err=True)
