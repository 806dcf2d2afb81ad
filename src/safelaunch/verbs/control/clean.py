"""safelaunch clean: delete the files of old runs; without --yes it only says which."""

from __future__ import annotations

import time

import click

from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.control import cleaning
from safelaunch.verbs.control.cleanplan import OldRun, may_go_with_checkpoints

VERSION = 1
USUAL_S = 30 * 86400.0
SHOWN_LEFT = 4


@click.command()
@click.argument("named", metavar="[RUN]...", nargs=-1, shell_complete=runs.complete_run)
@runs.duration_option("--older", "older_s", help="Only runs that ended longer ago than this (12h, 7d); 30d.")
@click.option("--checkpoints", is_flag=True, help="Also the checkpoints in the run folders, which else stay.")
@click.option("-y", "--yes", is_flag=True, help="Delete them. Without it: only the plan.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(named: tuple[str, ...], older_s: float | None, checkpoints: bool, yes: bool, as_json: bool) -> int:
    """Delete old runs of yours: logs, journal and script, never a run that goes on. Shows the plan first."""
    plan = cleaning.plan(named, USUAL_S if older_s is None else older_s, with_checkpoints=checkpoints)
    failed = {run.dir: why for run in plan.go if yes
              if (why := cleaning.remove(run, with_checkpoints=checkpoints))}
    if as_json:
        talk.emit_json({"v": VERSION, "acted": yes, "bytes": plan.bytes, "runs": [
            {"run_dir": run.dir, "name": run.name, "ended": run.how, "ended_t": run.ended_t, "bytes": run.bytes,
             "left": list(run.left), "trouble": failed.get(run.dir)} for run in plan.go],
            "kept": [{"run_dir": run.dir, "name": run.name, "why": why} for run, why in plan.kept]})
        return 1 if failed else 0
    for run in plan.go:
        click.echo(talk.clean(_line(run, checkpoints)))
        if run.dir in failed:
            talk.say(talk.clean(f"{run.dir}: {failed[run.dir]}"))
    kept = f"; {len(plan.kept)} stay (--json says why)" if plan.kept else ""
    count = f"{len(plan.go)} {'run' if len(plan.go) == 1 else 'runs'}, {_size(plan.bytes)}"
    if not plan.go:
        talk.say(f"nothing to delete{kept}")
    elif yes:
        talk.say(f"deleted: {count}{f', but for {len(failed)}' if failed else ''}{kept}")
    else:
        talk.say(f"nothing is deleted yet: {count}{kept}. To delete them: the same with --yes")
    return 1 if failed else 0


def _line(run: OldRun, checkpoints: bool) -> str:
    left = ", ".join(run.left[:SHOWN_LEFT]) + (" …" if len(run.left) > SHOWN_LEFT else "")
    elsewhere = checkpoints and run.resume and not may_go_with_checkpoints(run)
    return (f"{run.dir}   {_size(run.bytes)}   {run.how} {talk.span(time.time() - run.ended_t)} ago"
            f"{f'   stays: {left}' if left else ''}{f'   checkpoints stay: {run.resume}' if elsewhere else ''}")


def _size(count: int) -> str:
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
