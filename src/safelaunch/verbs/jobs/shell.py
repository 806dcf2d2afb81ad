"""safelaunch shell: a shell on a node of a run, inside its allocation."""

from __future__ import annotations

import os
import shlex

import click

from safelaunch.errors import UsageError
from safelaunch.run.fold.state import State
from safelaunch.run.io import ownership, runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import nodefold
from safelaunch.slurm.io import slurm
from safelaunch.verbs.common import runs

_GPU_OPTIONS = frozenset(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres", "tres-per-task"))


@click.command()
@runs.run_argument
@click.argument("node", required=False)
@click.option("--print", "only_print", is_flag=True, help="Print the command instead of running it.")
def command(which: str | None, node: str | None, only_print: bool) -> int:
    """Open a shell on NODE of a run (default: its batch host), beside whatever runs there."""
    run = runs.load(which)
    runs.check_here(run)
    runs.check_mine(run, "open a shell on a node", "shell")
    if run.plan.cluster == "local":
        ownership.require(run.dir)   # a shell runs what its environment says, and root may see the runs of others
        argv, env = ["bash", "-i"], {**runfolder.read_env(run.dir), "SAFELAUNCH_RUN_ID": run.plan.run_id}
        cwd = str(run.meta.get("cwd", run.dir))
    else:
        argv, env, cwd = shell_command(run, run.state(), node), slurm.outside_job(os.environ), None
    if only_print:
        click.echo(shlex.join(argv))
        return 0
    if cwd is not None:
        os.chdir(cwd)
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 - a person's own shell takes our place
    except FileNotFoundError as error:
        raise UsageError(f"{argv[0]} is not on this machine", hint="try it on a login node of the cluster") from error


def shell_command(run: Run, state: State, node: str | None) -> list[str]:
    """srun of an interactive step on a node of the run's job; raises UsageError when there is none."""
    job = state.job
    if state.ended is not None:
        raise UsageError(f"it has no nodes: {runs.describe_end(state.ended)}")
    if job is None or job.started_t is None or job.over:
        raise UsageError(f"{run.plan.name} has no nodes: it is {state.name}", hint=f"safelaunch status {run.dir}")
    chosen = node or job.batch_host or (job.nodes[0] if job.nodes else "")
    if job.nodes and chosen not in job.nodes:
        raise UsageError(f"{chosen} is not a node of job {job.id}, which has {nodefold.fold(job.nodes)}")
    has_gpus = any(name in _GPU_OPTIONS for name, _ in run.plan.sbatch)
    return slurm.shell_step(job.id, chosen, has_gpus=has_gpus)
