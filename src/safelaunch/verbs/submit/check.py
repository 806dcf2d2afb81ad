"""safelaunch check: is this train.yaml sound, or with --site: is this folder? Needs no Slurm."""

from __future__ import annotations

from pathlib import Path

import click

from safelaunch.config.io.configfiles import read_config
from safelaunch.config.notelines import note_lines
from safelaunch.errors import ConfigError, UsageError
from safelaunch.launch.settings import Settings
from safelaunch.run.io import registry, resumefolder
from safelaunch.verbs.common import talk
from safelaunch.verbs.submit import samefolder
from safelaunch.verbs.submit.sitecheck import check_site
from safelaunch.verbs.submit.trainfile import TrainFileCommand, split_rest, train_file_arguments


@click.command(cls=TrainFileCommand)
@train_file_arguments
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
@click.option("--site", is_flag=True, help="FILE is a folder: measure whether run folders are safe in it.")
def command(file: str, rest: tuple[str, ...], as_json: bool, site: bool) -> int:
    """Check a train.yaml: every problem at once, each with its place. With --site: a folder of this site."""
    if site:
        if rest:
            raise UsageError(f"--site takes one folder, not also {rest[0]!r}")
        return check_site(file, as_json)
    overrides, raw_sbatch = split_rest(rest)
    try:
        resolved = read_config(file, overrides, raw_sbatch)
        settings = resolved.settings
    except ConfigError as error:
        if as_json:
            problems = [problem._asdict() for problem in error.problems]
            talk.emit_json({"v": 1, "ok": False, "file": file, "problems": problems})
        else:
            talk.say(str(error))
        return error.exit_code
    if as_json:
        talk.emit_json({"v": 1, "ok": True, "file": file, "name": settings.name, "run_dir": settings.run_dir,
                        "notes": [talk.clean(note) for note in resolved.notes]})
    else:
        for note in (*note_lines(resolved.notes, file), *_shared_with(settings)):
            talk.say(note)
        click.echo(talk.clean(f"{file}: ok, {summarise(settings)}"))
    return 0


def _shared_with(settings: Settings) -> list[str]:
    """A warning where another living run writes to the same resume.dir."""
    folder = resumefolder.of_settings(settings, str(Path.cwd()))
    if folder is None or not registry.with_resume(folder):
        return []
    found = samefolder.find(folder, settings)
    return [] if found is None else [found.warning]


def summarise(settings: Settings) -> str:
    """A config in one line: `16 nodes × 8 GPUs, torchrun × 8, resumes from ckpt, run folder /…`."""
    launch, launcher, nodes, gpus = settings.launch, settings.launcher, settings.slurm["nodes"], settings.gpus_per_node
    size = f"{nodes} node{'s' if nodes != 1 else ''}"
    size += f" × {gpus} GPU{'s' if gpus != 1 else ''}" if gpus else ""
    by = f"{launcher.label} × {launch.nproc_per_node}" if launcher.starts_ranks else launcher.label
    where, by_whom = settings.resume.dir, "the training " if settings.resume.by == "training" else ""
    resume = f"{by_whom}resumes from {where}" if where else "no resume (resume.dir is not set)"
    return f"{size}, {by}, {resume}, run folder {settings.run_dir}"
