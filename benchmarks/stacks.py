"""python -m benchmarks.stacks: stacks of 32 ranks on 4 nodes, one asleep in D state, beside the seeds' own loop.

The loop is `srun … xargs py-spy dump`, as the author of the seeds typed it, with the pids given to it for nothing and
with -K1, as his site had it. Both look at the same job in turns. Then 100,352 stacks are folded, which were made up.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.frozen import mount_loop

from benchmarks.figure import Figure, render_table
from benchmarks.stage import ALICE, Stage, open_stage
from safelaunch.stacks.ranks import NodeReport, ReportReader
from safelaunch.stacks.stacks import fold
from safelaunch.stacks.verdict import judge_hang

NODES, TASKS, ROUNDS = 4, 8, 5
MANY_NODES, SHAPES, DEPTH = 12_544, 40, 30
LOOP_DEADLINE_S = 60.0
RANKS = """\
import os, pathlib, sys, time
rank, node, here = int(os.environ["SLURM_PROCID"]), os.environ["SLURMD_NODENAME"], pathlib.Path(sys.argv[1])
def arrive():
    (here / f"{node}.{rank}.pid").write_text(str(os.getpid()))
def write_log():
    with open(sys.argv[2], "w") as log:
        while True:
            log.write("x" * 4096)
            log.flush()
            if not list(here.glob(f"{node}.{rank}.pid")):
                arrive()
def all_reduce():
    arrive()
    time.sleep(3600)
write_log() if rank == 13 else all_reduce()
"""
JOB = """\
#!/bin/bash
#SBATCH --nodes={nodes} --ntasks-per-node={tasks} --time=30 --output=/dev/null
srun /usr/bin/python3 ranks.py {folder} {log}
"""


def main() -> int:
    """The exit code: 1 when a promise is missed."""
    figures = [*_measure_job(_py_spy()), *_measure_merge()]
    print(render_table("stacks: 32 ranks on 4 nodes, one in D state; 100,352 stacks", figures), flush=True)
    return int(any(figure.is_missed for figure in figures))


def _py_spy() -> Path:
    py_spy = Path(sys.executable).with_name("py-spy")
    if not py_spy.exists():
        raise SystemExit(f"benchmarks: no py-spy beside {sys.executable}: pip install py-spy")
    return py_spy


def _measure_job(py_spy: Path) -> list[Figure]:
    ours: list[tuple[float, int]] = []
    loop: list[tuple[float, int]] = []
    with open_stage(NODES) as stage, mount_loop() as mount:
        job, folder = _start_job(stage, mount.path / "log")
        mount.freeze()
        try:
            for _ in range(ROUNDS):
                ours.append(_look(stage, job, folder, 13))
                loop.append(_loop(stage, job, folder, py_spy))
        finally:
            mount.thaw()
    took_s, ranks = [took for took, _ in ours], [float(count) for _, count in ours]
    loop_s, loop_ranks = [took for took, _ in loop], [float(count) for _, count in loop]
    return [
        Figure("safelaunch stacks, a whole process", "s", tuple(took_s), "≤ 2 s"),
        Figure("  ranks accounted for", f"of {NODES * TASKS}", tuple(ranks), "all"),
        Figure("srun + xargs + py-spy", "s", tuple(loop_s)),
        Figure("  ranks dumped", f"of {NODES * TASKS}", tuple(loop_ranks), "", "safelaunch", loop_ranks[0] / ranks[0]),
    ]


def measure_in_turns(rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of safelaunch and of the loop, looking at a job whose ranks all answer."""
    py_spy = _py_spy()
    ours: list[float] = []
    loop: list[float] = []
    with open_stage(NODES) as stage:
        job, folder = _start_job(stage, Path("/dev/null"))
        for _ in range(rounds):
            for values, (took_s, ranks) in ((ours, _look(stage, job, folder, None)),
                                            (loop, _loop(stage, job, folder, py_spy))):
                assert ranks == NODES * TASKS, ranks
                values.append(took_s)
    return ours, loop


def _start_job(stage: Stage, log: Path) -> tuple[str, Path]:
    folder = stage.make_workdir()
    (folder / "ranks.py").write_text(RANKS)
    (folder / "job.sh").write_text(JOB.format(nodes=NODES, tasks=TASKS, folder=folder, log=log))
    job = stage.run(["sbatch", "--parsable", "job.sh"], cwd=folder).stdout.strip()
    end_s = time.monotonic() + LOOP_DEADLINE_S
    while len(list(folder.glob("*.pid"))) < NODES * TASKS:
        if time.monotonic() > end_s:
            raise SystemExit("benchmarks: the ranks did not start")
        time.sleep(0.05)
    return job, folder


def _look(stage: Stage, job: str, folder: Path, odd_rank: int | None) -> tuple[float, int]:
    """(seconds, ranks accounted for) of the whole command; `odd_rank` is the one in D state."""
    start_s = time.perf_counter()
    said = json.loads(stage.run([*stage.argv, "stacks", job, "--json"], cwd=folder).stdout)
    took_s = time.perf_counter() - start_s
    if odd_rank is not None:
        odd = [one["rank"] for one in said["verdict"]["odd"]]
        assert (said["verdict"]["kind"], odd) == ("storage", [odd_rank]), said["verdict"]
    return took_s, int(said["ranks"])


def _loop(stage: Stage, job: str, folder: Path, py_spy: Path) -> tuple[float, int]:
    """The same of the loop; a rank counts when its only thread is in the output."""
    shutil.rmtree(folder / "trace", ignore_errors=True)
    (folder / "trace").mkdir()
    shutil.chown(folder / "trace", ALICE)
    dump = f"for f in {folder}/$SLURMD_NODENAME.*.pid; do cat $f; echo; done | xargs -I {{}} {py_spy} dump --pid {{}}"
    start_s = time.perf_counter()
    argv = ["srun", "--overlap", f"--jobid={job}", f"--nodes={NODES}", f"--ntasks={NODES}", "--ntasks-per-node=1",
            "-K1", f"--output={folder}/trace/%N.out", "bash", "-c", dump]
    with contextlib.suppress(subprocess.TimeoutExpired):   # hung on the rank in D state: what it has written counts
        stage.sandbox.run(argv, user=ALICE, cwd=folder, timeout_s=LOOP_DEADLINE_S)
    took_s = time.perf_counter() - start_s
    texts = [path.read_text(errors="replace") for path in (folder / "trace").iterdir()]
    return took_s, sum(text.count("\nThread ") for text in texts)


def _measure_merge() -> list[Figure]:
    rng = random.Random(1)
    shapes = [[f"f{shape}_{depth} (torch/some/module{depth}.py:{depth * 7 + shape})" for depth in range(DEPTH)]
              for shape in range(SHAPES)]
    lines = [_line(node, [shapes[0] if rng.random() < 0.99 else rng.choice(shapes) for _ in range(TASKS)])
             for node in range(MANY_NODES)]
    before_mb = _peak_mb()
    start_s = time.perf_counter()
    reader = ReportReader()
    reports: list[NodeReport] = [reader.read(line) for line in lines]
    read_s = time.perf_counter() - start_s
    merge_s = []
    for _ in range(ROUNDS):
        ranks = [rank for report in reports for rank in report.ranks]
        start_s = time.perf_counter()
        groups = fold(ranks)
        merge_s.append(time.perf_counter() - start_s)
    start_s = time.perf_counter()
    judge_hang(reports, groups=groups)
    judge_s = time.perf_counter() - start_s
    assert sum(group.size for group in groups) == MANY_NODES * TASKS and len(groups) == SHAPES
    return [Figure("fold 100,352 stacks", "s", tuple(merge_s), "≤ 1 s"),
            Figure("  the verdict on them", "s", (judge_s,)),
            Figure("  reading them from 12,544 reports", "s", (read_s,)),
            Figure("  memory of reports and groups", "MB", (_peak_mb() - before_mb,), "≤ 200 MB")]


def _line(node: int, stacks: list[list[str]]) -> str:
    frames: dict[str, int] = {}
    numbers = [[frames.setdefault(frame, len(frames)) for frame in stack] for stack in stacks]
    rows = [{"rank": node * TASKS + task, "pid": 1000 + task, "state": "S", "states": "SS", "cpu": [[1, 1], [2, 1]],
             "samples": [[["MainThread", 1000 + task, 1, 0, task]]] * 2, "switches": [3, 3], "step": "0",
             "world": MANY_NODES * TASKS, "wchan": "futex_do_wait", "call": "futex"} for task in range(TASKS)]
    return json.dumps({"v": 1, "node": f"n{node}", "ranks": rows, "frames": list(frames), "stacks": numbers})


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
