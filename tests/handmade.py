"""Runs made by hand: a run folder whose journal and logs a test writes itself; no Slurm, no supervisor."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from safelaunch.base.model import Event
from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.run import plan as plans
from safelaunch.run.io import runmaking
from safelaunch.run.io.runfolder import Run
from safelaunch.run.journal import render

YAML = """\
name: bloom
command: python train.py
slurm: {nodes: 4, gpus_per_node: 8}
launch: {with: srun}
"""
NODES = ["n0", "n1", "n2", "n3"]


@dataclass
class Made:
    """A run and its journal, one writer a generation."""

    run: Run
    now: float
    seq: int = 0

    @property
    def dir(self) -> Path:
        return self.run.dir

    def event(self, event: str, *, ago_s: float = 0.0, gen: int = 1, host: str = "n0", **data: Any) -> Event:
        """Append one event to the journal."""
        self.seq += 1
        made = Event(self.now - ago_s, gen, self.seq, host, event, data)
        with (self.dir / "journal" / f"{gen:06d}-{host}-1.jsonl").open("ab") as file:
            file.write(render(made))
        return made

    def submitted(self, job: str = "12", **data: Any) -> None:
        self.event("submitted", gen=0, host="login", job=job, **data)

    def started(self, job: str = "12", **data: Any) -> None:
        self.event("job_started", job=job, nodes=NODES, batch_host="n0", **data)

    def attempt(self, number: int = 1, job: str = "12", **data: Any) -> None:
        self.event("attempt_started", attempt=number, job=job, nodes=data.pop("nodes", NODES), **data)

    def running(self, **data: Any) -> None:
        """Submitted, started, and its first attempt runs."""
        self.submitted()
        self.started()
        self.attempt(**data)

    def failed(self, number: int = 1, **data: Any) -> None:
        self.event("attempt_ended", attempt=number, how="failed", exit_code=1, **data)

    def completed(self) -> None:
        self.event("attempt_ended", attempt=1, how="completed", exit_code=0)
        self.event("completed", exit_code=0, why="attempt 1 ended with exit code 0")

    def pulse(self, age_s: float, mtime_age_s: float | None = None, **more: Any) -> None:
        """The last pulse of its leader."""
        path, mtime = self.dir / "pulse.json", self.now - (age_s if mtime_age_s is None else mtime_age_s)
        path.write_text(json.dumps({"v": 1, "count": 3, "t": self.now - age_s, "gen": 1, "host": "n0", "job": "12",
                                    "attempt": 1, "step": 7, "guards": 4, **more}))
        os.utime(path, (mtime, mtime))

    def log(self, number: int, data: bytes) -> Path:
        """Append to an attempt's main.log."""
        path = self.dir / "attempts" / f"{number:04d}" / "main.log"
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
        return path


def make_run(folder: Path, yaml: str = YAML, run_id: str = "1a2b3c4d", *overrides: str, cluster: str = "slurm") -> Made:
    """A run in `folder` with an empty journal."""
    wanted = [f"run_dir={folder}", f"cluster={cluster}", *overrides]
    config = resolve([ConfigLayer("file", "train.yaml", yaml)], wanted, os.environ, base_dir=str(folder.parent)).config
    meta = {"v": 1, "run_id": run_id, "name": config["name"], "cwd": str(folder.parent), "config": config}
    run = runmaking.create(folder, meta, plans.of_config(config, run_id), "#!/bin/bash\n", dict(os.environ)).keep()
    return Made(run, time.time())


def make_running(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A run "bloom" whose journal says that it runs, of which Slurm knows no job; `folder` is the current one then."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    fake_command(folder / "bin", "squeue", "exit 0")
    monkeypatch.chdir(folder)
    made = make_run(folder / "bloom")
    made.running()
    return made


def fake_command(folder: Path, name: str, script: str) -> Path:
    """An executable for rare answers of Slurm; put `folder` first on the PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return path
