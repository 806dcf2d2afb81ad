"""safelaunch checkpoints: which there are, which an attempt would resume from, and why the others are skipped."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from safelaunch.base.plaintext import columns
from safelaunch.checkpoints.latest import MOST_WHOLE, NAMES
from safelaunch.checkpoints.model import JudgedCheckpoint
from safelaunch.config.io.configfiles import read_config
from safelaunch.errors import UsageError
from safelaunch.run.io import runpath
from safelaunch.verbs.common import resumepoints, runs, talk
from safelaunch.verbs.common.resumepoints import CheckpointPlace, ResumePoints

SEARCH_S = 4.0   # of processor time: somebody may name /, or what is full of it
HOW_TO_SAY = "safelaunch checkpoints FOLDER looks into any folder"


@click.command()
@click.argument("which", metavar="[RUN|FOLDER|FILE]", required=False)
@click.option("--format", "format", metavar="NAME", help=f"As resume.format: {', '.join(NAMES)}, or a plugin's name; "
              "by default the run's, else auto.")
@click.option("--pattern", metavar="TEXT", help='As resume.pattern, such as "step_{step}.pt".')
@click.option("--all", "show_all", is_flag=True, help=f"Also those older than {MOST_WHOLE} complete ones.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, format: str | None, pattern: str | None, show_all: bool, as_json: bool) -> int:
    """List the checkpoints of a run, a train.yaml or a folder: the newest first, each complete or not and why."""
    place, only = _find_place(which)
    if format or pattern:
        asked = format or "pattern"
        place = place._replace(format=asked, pattern=pattern or (place.pattern if asked == "pattern" else None))
    if (place.format == "pattern") != (place.pattern is not None):
        raise UsageError("--format pattern needs a --pattern, and no other format takes one",
                         hint='for instance --pattern "step_{step}.pt"')
    most = sys.maxsize if show_all else MOST_WHOLE
    seen = resumepoints.look(place, most, SEARCH_S)
    if only is not None:
        seen = resumepoints.within(seen, only)
    elif not seen.judged or any(one.path == place.folder for one in seen.judged):
        seen, only = _as_one_of_many(seen, most)
    if as_json:
        talk.emit_json(_as_json(seen))
        return 0
    _show(seen)
    if only is None:
        _conclude(seen, is_cut=not show_all and sum(one.reason is None for one in seen.judged) >= MOST_WHOLE)
    return 0


def _as_one_of_many(points: ResumePoints, most_whole: int) -> tuple[ResumePoints, str | None]:
    """A folder that is a checkpoint itself, judged by its name beside others; else what was found."""
    folder = points.place.folder
    above = points.place._replace(folder=str(Path(folder).parent))
    found = resumepoints.within(resumepoints.look(above, most_whole, SEARCH_S), folder)
    return (found, folder) if any(one.path == folder for one in found.judged) else (points, None)


def _find_place(which: str | None) -> tuple[CheckpointPlace, str | None]:
    """Where to search, and the one file that is meant; raises UsageError."""
    kind = runs.ask(lambda: _kind_of(which), which or "this folder")
    if which is not None and kind == "train":
        return _need(resumepoints.of_settings(read_config(which).settings), which), None
    if which is not None and kind == "file":
        path = Path(which).absolute()
        return CheckpointPlace(str(path.parent)), str(path)
    if which is not None and kind == "folder":
        return CheckpointPlace(str(Path(which).absolute())), None
    run = runs.load(which)
    return _need(resumepoints.of_run(run), run.plan.name), None


def _kind_of(which: str | None) -> str:
    if which is None:
        return "run"
    path = Path(which)
    if path.is_dir():
        return "run" if runpath.is_run_folder(path) else "folder"
    if path.exists():
        return "train" if path.suffix in (".yaml", ".yml") else "file"
    return "run"


def _need(place: CheckpointPlace | None, whose: str) -> CheckpointPlace:
    if place is None:
        raise UsageError(f"{whose} has no resume.dir, which names the folder of its checkpoints", hint=HOW_TO_SAY)
    return place


def _as_json(points: ResumePoints) -> dict[str, object]:
    best = points.next
    return {"v": 1, "dir": points.place.folder, "format": points.place.format, "pattern": points.place.pattern,
            "next": _entry(best) if best else None, "candidates": [_entry(one) for one in points.judged]}


def _entry(one: JudgedCheckpoint) -> dict[str, object]:
    return {"path": one.path, "step": one.step, "format": one.format, "changed_t": one.changed_s,
            "complete": one.reason is None, "reason": one.reason}


def _show(points: ResumePoints) -> None:
    """A line for each: the path last, for a skipped one with the reason."""
    now = time.time()
    for line, one in zip(columns([_cells(one, now) for one in points.judged]), points.judged, strict=True):
        click.echo(line if one.reason is None else f"{line}: {talk.clean(one.reason)}")


def _conclude(points: ResumePoints, is_cut: bool) -> None:
    """What an attempt that starts now would do with it."""
    best = points.next
    if best is None:
        many = f"none of {len(points.judged)} is complete" if points.judged else "no checkpoint"
        talk.say(f"{many} in {talk.clean(points.place.folder)} (format {points.place.format}): an attempt starts from "
                 "the beginning")
    else:
        step = "" if best.step is None else f" step {best.step},"
        talk.say(f"an attempt resumes from{step} {talk.clean(best.path)}" + ("; older ones: --all" if is_cut else ""))


def _cells(one: JudgedCheckpoint, now: float) -> tuple[str, ...]:
    age = "" if one.changed_s is None else f"{talk.span(now - one.changed_s)} ago"
    return ("complete" if one.reason is None else "skipped", "-" if one.step is None else str(one.step), one.format,
            age, talk.clean(one.path))
