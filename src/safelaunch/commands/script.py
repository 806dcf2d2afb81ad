"""safelaunch script: the sbatch script of a train.yaml, needs no Slurm."""

from __future__ import annotations

import sys

import click

from safelaunch.adapters.configfiles import read_config
from safelaunch.views.submitting import render
from safelaunch.views.trainfile import split_rest, train_file_arguments


@click.command()
@train_file_arguments
def command(file: str, rest: tuple[str, ...]) -> int:
    """Print the sbatch script of a train.yaml; `RUN` stands for the run's id, which submit chooses."""
    overrides, raw_sbatch = split_rest(rest)
    sys.stdout.write(render(read_config(file, overrides, raw_sbatch), "RUN")[1])
    return 0
