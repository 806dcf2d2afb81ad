"""safelaunch script: the sbatch script of a train.yaml, needs no Slurm."""

from __future__ import annotations

import sys

import click

from safelaunch.config.debugpresets import debug_overrides
from safelaunch.config.io.configfiles import read_config
from safelaunch.verbs.submit.submitting import render
from safelaunch.verbs.submit.trainfile import TrainFileCommand, debug_option, split_rest, train_file_arguments


@click.command(cls=TrainFileCommand)
@train_file_arguments
@debug_option
def command(file: str, rest: tuple[str, ...], debug: tuple[str, ...]) -> int:
    """Print the sbatch script of a train.yaml; `RUN` stands for the run's id, which submit chooses."""
    overrides, raw_sbatch = split_rest(rest)
    settings = read_config(file, [*debug_overrides(debug), *overrides], raw_sbatch).settings
    sys.stdout.write(render(settings, "RUN")[1])
    return 0
