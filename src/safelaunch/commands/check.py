"""safelaunch check: is this train.yaml sound? Needs no Slurm."""

from __future__ import annotations

import json
from typing import Any

import click

from safelaunch.adapters.configfiles import read_config
from safelaunch.commands.trainfile import split_rest, train_file_arguments
from safelaunch.core.config.rules import gpus_per_node
from safelaunch.errors import ConfigError


@click.command()
@train_file_arguments
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a line.")
def command(file: str, rest: tuple[str, ...], as_json: bool) -> int:
    """Check a train.yaml: every problem at once, each with its place."""
    overrides, raw_sbatch = split_rest(rest)
    try:
        config = read_config(file, overrides, raw_sbatch).config
    except ConfigError as error:
        if as_json:
            problems = [vars(problem) for problem in error.problems]
            click.echo(json.dumps({"v": 1, "ok": False, "file": file, "problems": problems}, ensure_ascii=False))
        else:
            click.echo(str(error), err=True)
        return error.exit_code
    if as_json:
        click.echo(json.dumps({"v": 1, "ok": True, "file": file, "name": config["name"], "run_dir": config["run_dir"]}))
    else:
        click.echo(f"{file}: ok, {summarise(config)}")
    return 0


def summarise(config: dict[str, Any]) -> str:
    """A config in one line: `16 nodes × 8 GPUs, torchrun × 8, resumes from ckpt, run folder /…`."""
    slurm, launch = config["slurm"], config["launch"]
    nodes, gpus = slurm["nodes"], gpus_per_node(slurm)
    size = f"{nodes} node{'s' if nodes != 1 else ''}"
    size += f" × {gpus} GPU{'s' if gpus != 1 else ''}" if gpus else ""
    by = {"torchrun": f"torchrun × {launch['nproc_per_node']}", "srun": "srun", "none": "no launcher"}[launch["with"]]
    resume = (
        f"resumes from {config['resume']['dir']}" if config["resume"]["dir"] else "no resume (resume.dir is not set)"
    )
    return f"{size}, {by}, {resume}, run folder {config['run_dir']}"
