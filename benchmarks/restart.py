"""Last rank dead → first line of the next attempt, on the same nodes, beside peers with the same trainer.

What lies between for safelaunch: the guards' reports, the fence, the diagnosis, the journal, the search for the newest
checkpoint, the claim, srun, the node guards. A bash loop around srun has srun alone, and decides nothing.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.figure import Figure, percentile
from benchmarks.stage import SLURM_DEFAULTS, Stage, open_stage
from safelaunch.errors import SandboxError
from safelaunch.run.io import runfolder

TRAINER = Path(__file__).with_name("trainer.py")
NODES, ROUNDS, RESTARTS = 4, 4, 20   # in each round safelaunch, then the bash loop: a busy minute hits both
LOCAL_RANKS, LOCAL_RESTARTS = 2, 12
DEADLINE_S = 400.0
TRAIN_YAML = """\
name: restart
command: /usr/bin/python3 -S -E trainer.py . {restarts}
setup: echo "$EPOCHREALTIME" >>setup.txt
slurm: {{nodes: {nodes}, ntasks_per_node: 1, time: 30}}
launch: {{with: srun}}
resume: {{dir: ckpt, format: pattern, pattern: "step_{{step}}.txt", by: training}}
restart: {{max_restarts: 10000}}
"""
LOOP = """\
#!/bin/bash
#SBATCH --nodes={nodes} --ntasks-per-node=1 --time=30 --output=out.txt --open-mode=append
until srun -K1 --overlap /usr/bin/python3 -S -E trainer.py . {restarts}; do :; done
"""
REQUEUE = """\
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --time=30 --output=out.txt --open-mode=append --requeue
srun -K1 /usr/bin/python3 -S -E trainer.py . 1 || scontrol requeue "$SLURM_JOB_ID"
"""


def measure(torchrun: Path | None, ft_launcher: Path | None) -> list[Figure]:
    """Seconds from the last death to the first line, ours with its parts, and the peers'."""
    with open_stage(NODES, conf=SLURM_DEFAULTS) as stage:
        requeued = _submit_bash(stage, REQUEUE)   # it waits for two minutes, beside all the rest
        ours, bash, parts = measure_in_turns(stage, ROUNDS, RESTARTS)
        local = {name: _measure_launcher(path, flags) for name, (path, flags) in {
            "torchrun --max-restarts": (torchrun or _beside("torchrun"), []),
            "NVRx ft_launcher": (ft_launcher or _beside("ft_launcher"), ["--ignore-missing-fault-tol-cfg"]),
        }.items()}
        requeue = gaps_s(requeued, 1, 1)
    median_s = statistics.median(ours)
    figures = [
        Figure("safelaunch, in place", "s", tuple(ours), "≤ 0.3 s", "bash loop around srun",
               median_s / statistics.median(bash)),
        Figure("safelaunch, 99th percentile", "s", (percentile(ours, 0.99),), "≤ 1 s"),
        *(Figure(f"  of it: {name}", "s", tuple(values)) for name, values in parts.items()),
        Figure("bash loop around srun", "s", tuple(bash)),
    ]
    peers = {**local, "scontrol requeue": requeue}
    for name, values in peers.items():
        if values:
            ratio = median_s / statistics.median(values)
            figures.append(Figure(name, "s", tuple(values), peer="safelaunch takes", ratio=ratio))
    return figures


def measure_in_turns(stage: Stage, rounds: int, restarts: int) -> tuple[list[float], list[float],
                                                                        dict[str, list[float]]]:
    """The gaps of safelaunch and of the bash loop, who take turns, and the parts of the former."""
    ours: list[float] = []
    bash: list[float] = []
    parts: dict[str, list[float]] = {}
    for _ in range(rounds):
        gaps, round_parts = measure_ours(stage, restarts)
        ours += gaps
        for name, values in round_parts.items():
            parts.setdefault(name, []).extend(values)
        loop = _submit_bash(stage, LOOP.format(nodes=NODES, restarts=restarts))
        bash += gaps_s(loop, restarts, NODES)
    return ours, bash, parts


def measure_ours(stage: Stage, restarts: int, more: str = "") -> tuple[list[float], dict[str, list[float]]]:
    """The gaps, and their parts by the journal's times and a stamp of `setup`, with which the guard's child begins.
    `more`: further lines of train.yaml.
    """
    folder = lay_out(stage)
    (folder / "train.yaml").write_text(TRAIN_YAML.format(nodes=NODES, restarts=restarts) + more)
    stage.run([*stage.argv, "submit", "train.yaml"], cwd=folder)
    return gaps_s(folder, restarts, NODES), parts_s(folder, restarts, NODES)


def parts_s(folder: Path, restarts: int, stamps: int, begun: str = "srun, slurmd, guard's start",
            last: str = "the training's own start") -> dict[str, list[float]]:
    """The gaps of the one run of a folder in parts, which end with a word of the journal, with the first of `stamps`
    lines of an attempt in setup.txt (`begun`), and with the training's first line (`last`).
    """
    (run_dir,) = (folder / "runs").iterdir()
    at: dict[tuple[str, int], float] = {}
    for event in runfolder.load(run_dir).journal().events:
        name = "launch" if event.event == "decision" and event.data.get("action") == "launch" else event.event
        at.setdefault((name, int(event.data.get("attempt") or 0)), event.t)
    setups = sorted(float(line) for line in (folder / "setup.txt").read_text().split())
    firsts, deaths = _stamps_s(folder, "first", NODES), _stamps_s(folder, "dead", NODES)
    parts: dict[str, list[float]] = {}
    for number in range(1, restarts + 1):   # of the attempt that died; attempts count from 1, launches from 0
        moments = {
            "dead": max(deaths[number - 1]),
            "guards' reports, fence, last words": at["attempt_ended", number],
            "verdict, checkpoint search, journal, claim": at["launch", number + 1],
            "journal (intent), fork of the launch": at["attempt_started", number + 1],
            begun: setups[number * stamps],
            last: min(firsts[number]),
        }
        for before, name in itertools.pairwise(moments):
            parts.setdefault(name, []).append(moments[name] - moments[before])
    return parts


def _submit_bash(stage: Stage, script: str) -> Path:
    """The folder of a job made of a plain script."""
    folder = lay_out(stage)
    (folder / "job.sh").write_text(script)
    stage.run(["sbatch", "job.sh"], cwd=folder)
    return folder


def lay_out(stage: Stage) -> Path:
    """A new folder of the user's with the trainer."""
    folder = stage.make_workdir()
    shutil.copy(TRAINER, folder / "trainer.py")
    return folder


def _measure_launcher(program: Path | None, flags: list[str]) -> list[float]:
    """The gaps of a launcher with a restart of its own on this machine; [] where it is not installed."""
    if program is None:
        return []
    with tempfile.TemporaryDirectory(prefix="safelaunch-bench-") as name, open(f"{name}/out.txt", "wb") as out:
        argv = [str(program), "--nnodes", "1", "--nproc-per-node", str(LOCAL_RANKS), "--max-restarts",
                str(LOCAL_RESTARTS), *flags, "--no-python", "/usr/bin/python3", "-S", "-E", str(TRAINER), name,
                str(LOCAL_RESTARTS)]
        process = subprocess.Popen(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                                   env=_plain_env(os.environ))
        try:
            return gaps_s(Path(name), LOCAL_RESTARTS, LOCAL_RANKS)
        except SandboxError as failed:
            words = Path(name, "out.txt").read_text(errors="replace")[-600:]
            print(f"{program} is not measured: {failed.message}\n{words}", file=sys.stderr)
            return []
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=30)


def _plain_env(env: Mapping[str, str]) -> dict[str, str]:
    """Without what an outer launcher may have left."""
    return {key: value for key, value in env.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")}


def _beside(name: str) -> Path | None:
    path = Path(sys.executable).with_name(name)
    return path if path.exists() else None


def gaps_s(folder: Path, restarts: int, ranks: int) -> list[float]:
    """Seconds from the last death of each launch to the first line of the next, once all launches have been."""
    end_s = time.monotonic() + DEADLINE_S
    while any(len(_lines(folder / f"first_{rank}")) <= restarts for rank in range(ranks)):
        if time.monotonic() > end_s:
            raise SandboxError(f"{folder}: {restarts} restarts did not happen within {DEADLINE_S:.0f} s; launches: "
                               f"{[len(_lines(folder / f'first_{rank}')) for rank in range(ranks)]}")
        time.sleep(0.5)
    firsts, deaths = _stamps_s(folder, "first", ranks), _stamps_s(folder, "dead", ranks)
    return [min(firsts[number + 1]) - max(deaths[number]) for number in range(restarts)]


def _stamps_s(folder: Path, word: str, ranks: int) -> dict[int, list[float]]:
    """Launch → the times at which its ranks left that stamp."""
    found: dict[int, list[float]] = {}
    for rank in range(ranks):
        for line in _lines(folder / f"{word}_{rank}"):
            t_ns, number = line.split()
            found.setdefault(int(number), []).append(int(t_ns) / 1e9)
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
