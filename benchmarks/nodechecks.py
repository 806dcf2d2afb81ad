"""How long the light checks of all nodes take: 4 and 256 nodes, of which each is a stand-in for srun on this machine.

A stand-in sleeps for as long as a helper step took here to start, and as the real checks took on this machine alone,
then prints their answer. So this measures the leader's side: its processes, their waves, and reading the answers.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figure import Figure
from safelaunch.nodehealth.io.nodechecks import CheckQuestion, NodeChecks
from safelaunch.slurm.io.noderound import NODE, Target

STEP_S = 0.1   # a helper step's start on a real Slurm of this machine
TIMES = 5
TARGETS_S = {4: 5, 256: 10}


def measure() -> list[Figure]:
    """Seconds until all have answered, and the processor time of that on the batch host."""
    with tempfile.TemporaryDirectory() as folder:
        answer, alone_s = _ask_this_machine(folder)
        (Path(folder) / "answer").write_text(answer)
        srun = Path(folder) / "srun"
        srun.write_text(f"#!/bin/bash\nsleep {alone_s + STEP_S:.3f}\nexec cat {folder}/answer\n")
        srun.chmod(0o755)
        env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        os.environ["PATH"] = env["PATH"]
        figures = [Figure("the checks alone, on this machine", "s", (alone_s,))]
        for count, most_s in TARGETS_S.items():
            took, used = zip(*(_check(count, env) for _ in range(TIMES)), strict=True)
            figures += [Figure(f"light checks of {count} nodes", "s", took, f"≤ {most_s} s"),
                        Figure("… processor time on the batch host", "s", used)]
    return figures


def _ask_this_machine(folder: str) -> tuple[str, float]:
    argv = [sys.executable, "-I", "-S", str(NODE / "checks" / "main.py"), json.dumps({"paths": [folder]})]
    start_s = time.perf_counter()
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return said, time.perf_counter() - start_s


def _check(count: int, env: dict[str, str]) -> tuple[float, float]:
    nodes = tuple(f"n{number}" for number in range(count))
    before_s = _used_s()
    checked = NodeChecks(Target("1", nodes), env, CheckQuestion(dict.fromkeys(nodes, "light"))).wait()
    if len(checked.reports) != count:
        raise SystemExit(f"benchmarks: only {len(checked.reports)} of {count} have answered: {checked.silent[:1]}")
    return checked.took_s, _used_s() - before_s


def _used_s() -> float:
    return sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, (
        resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
