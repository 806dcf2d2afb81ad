"""python -m benchmarks.sweeps: a sweep's submission beside as many sbatch in a shell's loop, and what it asks of Slurm.

They take turns, as the same ordinary user. The partition is down meanwhile, so that the jobs stay in the queue. With
--delay-ms it is measured twice: as here, where slurmctld is on the same machine, and with a network between.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Mapping

from benchmarks.relay import far_controller
from benchmarks.stage import Stage, open_stage

ROUNDS = 3
MAX_RATIO = 1.0
COMMANDS = ("sbatch", "squeue", "scontrol", "sinfo", "sacct", "scancel")
TRAIN_YAML = """\
command: "true"
slurm: {nodes: 1, ntasks_per_node: 1, time: 5}
launch: {with: srun}
"""
BASH = '#!/bin/bash\n#SBATCH --output=/dev/null\n#SBATCH --time=5\ntrue\n'
LOOP = "for i in $(seq %d); do sbatch job.sh; done >/dev/null"


def measure(
    stage: Stage, points: int, parallel: int | None, rounds: int, env: Mapping[str, str]
) -> tuple[list[float], list[float]]:
    """Milliseconds a job: of a sweep, and of a loop of sbatch."""
    ours, theirs = [], []
    folder = stage.make_workdir()
    (folder / "job.sh").write_text(BASH)
    (folder / "train.yaml").write_text(TRAIN_YAML)
    most = [f"max_parallel={parallel}"] if parallel else []
    for number in range(rounds):
        words = [*stage.argv, "submit", "train.yaml", f"name=m{parallel or 0}n{number}{'f' if env else ''}",
                 f"sweep={{seed: 0-{points - 1}}}", *most]
        ours.append(stage.time_s(words, cwd=folder, env=env) * 1e3 / points)
        theirs.append(stage.time_s(["bash", "-c", LOOP % points], cwd=folder, env=env) * 1e3 / points)
        stage.sandbox.slurm(["scancel", "--user=sl-alice"])
    return ours, theirs


def count(stage: Stage, points: int) -> dict[str, Counter[str]]:
    """How often each command of Slurm is called by verbs of a sweep."""
    folder = stage.make_workdir()
    (folder / "train.yaml").write_text(TRAIN_YAML)
    shims = folder / "bin"
    shims.mkdir()
    for name in COMMANDS:
        (shims / name).write_text(f'#!/bin/bash\necho {name} >>"{folder}/calls"\nPATH=${{PATH#*:}} exec {name} "$@"\n')
        (shims / name).chmod(0o755)
    found = {}
    for words in (["submit", "train.yaml", "name=counted", f"sweep={{seed: 0-{points - 1}}}", "max_parallel=4"],
                  ["status", "counted"], ["why", "counted"]):
        (folder / "calls").write_text("")
        (folder / "calls").chmod(0o666)
        stage.run(["bash", "-c", f'PATH={shims}:$PATH "$@"', "bash", *stage.argv, *words], cwd=folder)
        found[words[0]] = Counter((folder / "calls").read_text().split())
    return found


def _measure_all(stage: Stage, options: argparse.Namespace, env: Mapping[str, str], where: str) -> int:
    """1 where the target is missed."""
    code = 0
    for parallel in (None, 4, 1):
        ours, theirs = measure(stage, options.points, parallel, options.rounds, env)
        ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
        code |= ratio > MAX_RATIO
        print(f"max_parallel {parallel}{where}: {statistics.median(ours):.1f} ms a point, sbatch "
              f"{statistics.median(theirs):.1f} ms, ratio {ratio:.2f} (target {MAX_RATIO:.1f})", flush=True)
    return code


def main() -> int:
    """The exit code: 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--delay-ms", type=float, help="also with a slurmctld that is so far away, one way")
    options = parser.parse_args()
    with open_stage(1) as stage:
        stage.sandbox.slurm(["scontrol", "update", "PartitionName=main", "State=DOWN"])
        code = _measure_all(stage, options, {}, "")
        if options.delay_ms:
            with far_controller(stage.sandbox.dir / "slurm.conf", options.delay_ms / 1e3) as env:
                _measure_all(stage, options, env, f", slurmctld {options.delay_ms:g} ms away")
        for verb, calls in count(stage, options.points).items():
            print(f"{verb}: {dict(calls)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
