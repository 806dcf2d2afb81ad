"""What a script of the user's own costs beside train.yaml and beside plain srun (docs/scripts.md).

`srun` in such a script is a wrapper, which starts the real srun with a node guard for each task. Both run `true` in
turns in one script. A restart of a script starts the script's own shell before its srun.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.restart import TRAIN_YAML, gaps_s, lay_out
from benchmarks.stage import SLURM_DEFAULTS, Stage, open_stage
from safelaunch.adapters import runfolder

NODES, ROUNDS, RESTARTS, SRUNS = 4, 3, 12, 40
WRAPPER_S, GAP_RATIO = 0.030, 1.5
RESTARTED = """\
#!/bin/bash
#SBATCH --nodes={nodes} --ntasks-per-node=1 --time=30
srun /usr/bin/python3 -S -E trainer.py . {restarts}
"""
KEYS = ("resume.dir=ckpt", "resume.format=pattern", "resume.pattern=step_{step}.txt", "restart.max_restarts=10000")
SRUN = """\
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --time=30
srun true; "$SAFELAUNCH_SRUN" true
for ((turn = 0; turn < {sruns}; turn++)); do
  begin=$EPOCHREALTIME; "$SAFELAUNCH_SRUN" true; between=$EPOCHREALTIME; srun true
  echo "$begin $between $EPOCHREALTIME" >>times.txt
done
"""


def measure() -> list[Figure]:
    """Seconds of an srun by the wrapper and without it, and of a restart in a script and in a train.yaml."""
    with open_stage(NODES, conf=SLURM_DEFAULTS) as stage:
        times = [[float(word) for word in line.split()] for line in _time_sruns(stage).splitlines()]
        script: list[float] = []
        yaml: list[float] = []
        for _ in range(ROUNDS):
            yaml += _restarts(stage, "train.yaml", TRAIN_YAML.format(nodes=NODES, restarts=RESTARTS), ())
            script += _restarts(stage, "job.slurm", RESTARTED.format(nodes=NODES, restarts=RESTARTS), KEYS)
    more = tuple((end - between) - (between - begin) for begin, between, end in times)
    return [
        Figure("an srun of the script costs more by", "s", more, f"≤ {WRAPPER_S:g} s", "the target",
               statistics.median(more) / WRAPPER_S, 1.0),
        Figure("plain srun", "s", tuple(between - begin for begin, between, _ in times)),
        Figure("restart of a script", "s", tuple(script), f"≤ {GAP_RATIO} × train.yaml", "train.yaml",
               statistics.median(script) / statistics.median(yaml), GAP_RATIO),
        Figure("restart of a train.yaml", "s", tuple(yaml)),
    ]


def _time_sruns(stage: Stage) -> str:
    folder = lay_out(stage)
    (folder / "job.slurm").write_text(SRUN.format(sruns=SRUNS))
    stage.run([*stage.argv, "submit", "job.slurm"], cwd=folder)
    stage.run([*stage.argv, "wait", "job"], cwd=folder, timeout_s=300)
    return (folder / "times.txt").read_text()


def _restarts(stage: Stage, name: str, text: str, keys: tuple[str, ...]) -> list[float]:
    folder = lay_out(stage)
    (folder / name).write_text(text)
    stage.run([*stage.argv, "submit", name, *keys], cwd=folder)
    found = gaps_s(folder, RESTARTS, NODES)
    _check_attempts(next((folder / "runs").iterdir()))
    return found


def _check_attempts(run_dir: Path) -> None:
    """The figures are of restarts in place, each in an attempt of its own."""
    assert len(runfolder.load(run_dir).state().attempts) == RESTARTS + 1, run_dir
