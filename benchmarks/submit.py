"""`safelaunch submit` beside submitit and bare sbatch: whole processes of the same ordinary user, taking turns.

The partition is down meanwhile, so that the jobs stay in the queue and take no time from the next submission.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.figure import Figure, ratio_of_pairs
from benchmarks.stage import Stage, open_stage

PAIRS = 21
WARM_UP = 2     # the first pairs read Python's files from the disk
MAX_RATIO = 1.0
BY_PLUGIN, MAX_PLUGIN_RATIO = "submitit, cluster=safelaunch", 1.2
TRAIN_YAML = """\
name: bench
command: "true"
slurm: {nodes: 1, ntasks_per_node: 1, time: 5}
launch: {with: srun}
"""
SUBMITIT = """\
import submitit
executor = submitit.AutoExecutor(folder="logs", cluster="slurm")
executor.update_parameters(timeout_min=5)
print(executor.submit(print, "hello").job_id)
"""
PLUGIN = SUBMITIT.replace('"slurm"', '"safelaunch"')
BASH = '#!/bin/bash\n#SBATCH --output=/dev/null\n#SBATCH --time=5\ntrue\n'


def measure(pairs: int = PAIRS) -> list[Figure]:
    """Milliseconds of each way to submit a job."""
    import submitit  # noqa: F401 - says at once that the peer is missing: pip install '.[bench]'

    with open_stage(1) as stage:
        stage.sandbox.slurm(["scontrol", "update", "PartitionName=main", "State=DOWN"])
        plain, repository = _lay_out(stage), _lay_out(stage)
        _make_repository(stage, repository)
        submitit_argv = [sys.executable, "peer.py"]
        ways = {
            "safelaunch submit": (plain, [*stage.argv, "submit", "train.yaml"]),
            "submitit": (plain, submitit_argv),
            BY_PLUGIN: (plain, [sys.executable, "plugin.py"]),
            "safelaunch submit, in a git repository": (repository, [*stage.argv, "submit", "train.yaml"]),
            "submitit, in a git repository": (repository, submitit_argv),
            "sbatch": (plain, ["sbatch", "job.sh"]),
            "python -c pass": (plain, [sys.executable, "-c", "pass"]),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(WARM_UP + pairs):
            for name, (cwd, argv) in ways.items():
                own_name = [f"name=n{number}"] if "submit" in argv else []   # a run of that name has not ended
                took_s = stage.time_s([*argv, *own_name], cwd=cwd)
                if number >= WARM_UP:
                    found[name].append(took_s * 1e3)
    figures = []
    for name, values in found.items():
        peer, most = _peer_of(name)
        ratio = ratio_of_pairs(values, found[peer]) if peer else None
        figures.append(Figure(name, "ms", tuple(values), f"≤ {most:.1f} × submitit" if most else "", peer, ratio, most))
    return figures


def _peer_of(name: str) -> tuple[str, float | None]:
    """What a way is measured against ("" = nothing), and the target."""
    if name == BY_PLUGIN:
        return "submitit", MAX_PLUGIN_RATIO
    peer = name.replace("safelaunch submit", "submitit") if name.startswith("safelaunch") else ""
    return peer, MAX_RATIO if peer == "submitit" else None


def _lay_out(stage: Stage) -> Path:
    folder = stage.make_workdir()
    for name, text in (("train.yaml", TRAIN_YAML), ("peer.py", SUBMITIT), ("plugin.py", PLUGIN), ("job.sh", BASH)):
        (folder / name).write_text(text)
    return folder


def _make_repository(stage: Stage, folder: Path) -> None:
    """The size of a small project: 500 files, one of them changed since the commit, run folders ignored."""
    git = ["git", "-c", "user.name=alice", "-c", "user.email=alice@localhost"]
    stage.run(["bash", "-c", "mkdir src && for i in {1..500}; do seq 300 >src/$i.py; done; echo runs >.gitignore; "
                             "echo logs >>.gitignore"], cwd=folder)
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "First"]):
        stage.run([*git, *words], cwd=folder)
    stage.run(["bash", "-c", "echo changed >>src/7.py"], cwd=folder)
