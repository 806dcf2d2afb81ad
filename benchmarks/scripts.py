"""What a script of the user's own costs beside train.yaml and beside plain srun (docs/scripts.md).

`srun` in such a script is a wrapper, which starts the real srun with a node guard for each task. The wrapper alone is
measured with a stand-in for srun, in processor time. With its guard it runs `true` in turns with the plain srun, in one
script. A restart of a script starts the script's own shell before its srun.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import safelaunch
from benchmarks.figure import Figure
from benchmarks.restart import TRAIN_YAML, gaps_s, lay_out, parts_s
from benchmarks.stage import SLURM_DEFAULTS, Stage, open_stage
from safelaunch.guard.io.guardcode import guard_text
from safelaunch.run.io import runfolder

NODES, ROUNDS, RESTARTS, SRUNS = 4, 3, 12, 40
WRAPPER_S, GAP_RATIO = 0.010, 1.5
RESTARTED = """\
#!/bin/bash
#SBATCH --nodes={nodes} --ntasks-per-node=1 --time=30
echo "$EPOCHREALTIME" >>setup.txt
srun /usr/bin/python3 -S -E trainer.py . {restarts}
"""
SCRIPTS_OWN = ("the job script, the guard of the user's", "the wrapper, srun, slurmd, guards, the training's own start")
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
    """Seconds of the wrapper, of an srun with and without it, and of a restart in a script and in a train.yaml."""
    wrapper, plain = _time_wrapper()
    with open_stage(NODES, conf=SLURM_DEFAULTS) as stage:
        times = [[float(word) for word in line.split()] for line in _time_sruns(stage).splitlines()]
        parts: dict[str, list[float]] = {}
        script: list[float] = []
        yaml: list[float] = []
        for _ in range(ROUNDS):
            yaml += _restarts(stage, "train.yaml", TRAIN_YAML.format(nodes=NODES, restarts=RESTARTS), ())[0]
            gaps, folder = _restarts(stage, "job.slurm", RESTARTED.format(nodes=NODES, restarts=RESTARTS), KEYS)
            script += gaps
            for part, values in parts_s(folder, RESTARTS, 1, *SCRIPTS_OWN).items():
                parts.setdefault(part, []).extend(values)
    more = tuple((end - between) - (between - begin) for begin, between, end in times)
    return [
        Figure("the wrapper alone, processor time", "s", wrapper, f"≤ {WRAPPER_S:g} s", "the target",
               statistics.median(wrapper) / WRAPPER_S, 1.0),
        Figure("  its stand-in for srun alone", "s", plain),
        Figure("an srun with wrapper and guard takes longer by", "s", more),
        Figure("plain srun", "s", tuple(between - begin for begin, between, _ in times)),
        Figure("restart of a script", "s", tuple(script), f"≤ {GAP_RATIO} × train.yaml", "train.yaml",
               statistics.median(script) / statistics.median(yaml), GAP_RATIO),
        *(Figure(f"  of it: {name}", "s", tuple(values)) for name, values in parts.items()),
        Figure("restart of a train.yaml", "s", tuple(yaml)),
    ]


def _time_wrapper() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Processor seconds of the wrapper with a stand-in for srun, and of that alone."""
    with tempfile.TemporaryDirectory(prefix="safelaunch-bench-") as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        (folder / "job.slurm").write_text("#!/bin/bash\nsrun true\n")
        rendered = subprocess.run([sys.executable, "-m", "safelaunch", "script", "job.slurm"], cwd=folder, check=True,
                                  capture_output=True).stdout
        (folder / "job.sbatch").write_bytes(rendered)
        (folder / "job.sbatch").chmod(0o755)
        (folder / "bin" / "srun").symlink_to(folder / "job.sbatch")
        (folder / "lib").mkdir()
        (folder / "lib" / "safelaunch").symlink_to(Path(safelaunch.__file__).parent)
        (folder / "real").write_text("#!/bin/bash\nexit 0\n")
        (folder / "real").chmod(0o755)
        secrets = {"SAFELAUNCH_GUARD": guard_text(), "SAFELAUNCH_TOKEN": "t", "SAFELAUNCH_CONTROL": ":1"}
        root = subprocess.Popen(["sleep", "600"], env={**os.environ, **secrets})
        env = {**os.environ, "SAFELAUNCH_SRUN": f"{folder}/real", "SAFELAUNCH_WRAPPER": f"{folder}/bin/srun",
               "SAFELAUNCH_ROOT": str(root.pid), "SAFELAUNCH_ATTEMPT": "1", "SAFELAUNCH_MARK": "r.7.1",
               "SLURM_JOB_ID": "7", "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        try:
            return (tuple(_cpu_s(["bash", f"{folder}/bin/srun", "-N1", "true"], env) for _ in range(SRUNS)),
                    tuple(_cpu_s([f"{folder}/real"], env) for _ in range(SRUNS)))
        finally:
            root.kill()
            root.wait()


def _cpu_s(argv: Sequence[str], env: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _time_sruns(stage: Stage) -> str:
    folder = lay_out(stage)
    (folder / "job.slurm").write_text(SRUN.format(sruns=SRUNS))
    stage.run([*stage.argv, "submit", "job.slurm"], cwd=folder)
    stage.run([*stage.argv, "wait", "job"], cwd=folder, timeout_s=300)
    return (folder / "times.txt").read_text()


def _restarts(stage: Stage, name: str, text: str, keys: tuple[str, ...]) -> tuple[list[float], Path]:
    folder = lay_out(stage)
    (folder / name).write_text(text)
    stage.run([*stage.argv, "submit", name, *keys], cwd=folder)
    found = gaps_s(folder, RESTARTS, NODES)
    _check_attempts(next((folder / "runs").iterdir()))
    return found, folder


def _check_attempts(run_dir: Path) -> None:
    """The figures are of restarts in place, each in an attempt of its own."""
    assert len(runfolder.load(run_dir).state().attempts) == RESTARTS + 1, run_dir
