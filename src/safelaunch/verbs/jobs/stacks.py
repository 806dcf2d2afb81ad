"""safelaunch stacks: what every rank of a job does right now, grouped, and which of them hold the others."""

from __future__ import annotations

import os
import shutil
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path

import click

from safelaunch.base.io import durable
from safelaunch.base.plaintext import LABEL_WIDTH
from safelaunch.base.secretmask import mask, mask_all
from safelaunch.errors import UsageError
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import nodefold
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.noderound import Target
from safelaunch.stacks import stacktext, waited
from safelaunch.stacks.io import collect
from safelaunch.stacks.io.collect import Collected, Depth
from safelaunch.stacks.parallel import Sizes, parse_sizes
from safelaunch.stacks.stacks import fold
from safelaunch.stacks.verdict import judge_hang
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.jobs import foreignjob
from safelaunch.verbs.why.whyrun import present_of

DEADLINE_S = 8.0
NATIVE_DEADLINE_S = 30.0
LEAST_WIDTH = 40
FRESH_S, FRESH_STEPS = 5.0, 4.0   # of its last step; a later one may be the first of a hang


@click.command()
@click.argument("which", metavar="[RUN | JOBID]", required=False, shell_complete=runs.complete_run)
@click.option("--native", is_flag=True, help="Frames of C and CUDA libraries as well; stops each process for a second.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/stacks.md.")
@click.option("--raw", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write each node's report and each rank's stacks into DIR.")
@click.option("--gpus", is_flag=True, help="Show what nvidia-smi says of each node's GPUs.")
@click.option("--samples", type=click.IntRange(1, 20),
              help="Samples of each rank; one whose samples differ moves.  [default: 2; 12 of a run that makes steps]")
@click.option("--parallel", "sizes", metavar="tp=N,pp=N", help="Sizes of the parallel groups, Megatron's order.")
@click.option("--deadline", "deadline_s", type=click.FloatRange(1, 600), metavar="SECONDS",
              help="For each node (default 8; with --native 30).")
def command(which: str | None, native: bool, as_json: bool, raw: Path | None, gpus: bool,
            samples: int | None, sizes: str | None, deadline_s: float | None) -> int:
    """Show what every rank of a job does: stacks of all nodes at once, grouped. Any running job of yours."""
    parallel = parse_sizes(sizes) if sizes else None
    target, env, run = _find_target(which)
    is_moving = run is not None and _makes_steps(run, time.time())
    limit_s = deadline_s or (NATIVE_DEADLINE_S if native else DEADLINE_S)
    depth = Depth(samples=samples or (waited.SAMPLES if is_moving and not native else 2), native=native,
                  deadline_s=limit_s)
    collected = collect.start(target, env, depth).wait()
    if raw is not None:
        _write_raw(raw, collected)
    is_moving = is_moving and run is not None and _makes_steps(run, time.time())
    _show(collected, parallel, as_json, gpus, is_moving)
    if not as_json:
        talk.say(f"{len(collected.reports)} of {len(target.nodes)} nodes answered, {collected.took_s:.1f} s")
    return 0


def _makes_steps(run: Run, now: float) -> bool:
    """Whether its log has just named a step: what its ranks do is no hang."""
    present = present_of(run, run.state(), run.journal().events, now)
    if present is None or present.step is None or present.quiet_s is None or present.is_silent:
        return False
    return present.quiet_s < max(FRESH_S, FRESH_STEPS * (present.usual_s or 0.0))


def _show(collected: Collected, parallel: Sizes | None, as_json: bool, gpus: bool, is_moving: bool = False) -> None:
    """The answer on stdout; secrets in command lines and stacks are ***, as in an attempt's dumps."""
    ranks = [rank for report in collected.reports for rank in report.ranks]
    groups = fold(ranks)
    # Where one has been stopped or has gone, the steps that the log has just named were the last.
    is_moving = is_moving and not collected.silent and not any(rank.is_stopped or rank.is_gone for rank in ranks)
    verdict = waited.judge_moving(ranks) if is_moving else judge_hang(
        collected.reports, collected.silent, sizes=parallel, groups=groups)
    if as_json:
        talk.emit_json(mask_all(
            stacktext.to_public(groups, verdict, collected.reports, collected.silent, collected.took_s)))
        return
    lines = stacktext.tell(groups, verdict, collected.reports, collected.silent, nodefold.fold)
    lines += ["", *collect.gpu_lines(collected)] if gpus else []
    width = shutil.get_terminal_size().columns if talk.is_for_person() else 0
    click.echo("\n".join(_fit(talk.clean(mask(line)), width) for line in lines))


def _fit(line: str, width: int) -> str:
    """A line folded to that width, after its label or below its indentation; 0 = not folded."""
    if width < LEAST_WIDTH or len(line) <= width:
        return line
    own = len(line) - len(line.lstrip())
    indent = own + 4 if own or line[:1].isdigit() else LABEL_WIDTH
    return textwrap.fill(line, width, subsequent_indent=" " * indent, break_on_hyphens=False,
                         break_long_words=False)


def _find_target(which: str | None) -> tuple[Target, Mapping[str, str], Run | None]:
    """(target, environment of the helpers, run): a run of safelaunch, else any job; raises UsageError, SlurmError."""
    env = slurm.outside_job(os.environ)
    try:
        run = runs.load(which)
    except UsageError:
        if which is None or not which.replace("_", "").replace("+", "").isdigit():
            raise
        return foreignjob.target_of(foreignjob.find(which, "stacks", env), env), env, None
    runs.check_here(run)
    runs.check_mine(run, "look at the ranks", "stacks")
    return _run_target(run, env), env, run


def _run_target(run: Run, env: Mapping[str, str]) -> Target:
    state = run.state()
    job, attempt = state.job, state.attempt
    if state.ended is not None:
        raise UsageError(f"no rank is left: {runs.describe_end(state.ended)}",
                         hint=f"safelaunch why {run.dir}")
    if job is None or job.started_t is None or job.over:
        raise UsageError(f"{run.plan.name} has no running job: it is {state.name}", hint=f"safelaunch status {run.dir}")
    nodes = attempt.nodes if attempt is not None and attempt.job == job.id and attempt.nodes else job.nodes
    mark = f"{run.plan.run_id}.{job.id}."
    if run.plan.cluster == "local":
        return Target(job.id, nodes, mark, is_local=True)
    return Target(job.id, nodes, mark, has_gpus=foreignjob.has_gpus(job.id, env))


def _write_raw(folder: Path, collected: Collected) -> None:
    """Each node's line and each rank's text, in files of their own."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in collect.raw_files(collected).items():
            durable.put(folder / name, mask(text).encode(errors="replace"), 0o640)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from error
    talk.say(f"{len(collected.lines)} reports are in {folder}")
