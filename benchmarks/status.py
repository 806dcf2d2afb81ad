"""python -m benchmarks.status: what `safelaunch status` takes with 200 runs of one's own, whole processes.

Each has a journal of EVENTS lines, one a minute. LIVING of them make steps, with 1 MB of log and 20 checkpoints; the
others have ended, half of them within a day. squeue is a file that a shell prints. Folders lie on this machine's disk.
The first look, before the list has noted which runs have ended, is a figure of its own.
"""

from __future__ import annotations

import compileall
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import safelaunch
from benchmarks.figure import Figure, render_table
from benchmarks.watch import CONFIG
from safelaunch.base.model import Event
from safelaunch.run.io import registry
from safelaunch.run.journal import render

RUNS, LIVING = 200, 10
ROUNDS = 15
TARGET = "≤ 150 ms"
EVENTS = 10_000


def measure() -> list[Figure]:
    """Milliseconds of each way to ask, and of processor time, which tells more on a busy machine."""
    with tempfile.TemporaryDirectory(prefix="safelaunch-status-") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        shutil.copytree(Path(safelaunch.__file__).parent, folder / "site" / "safelaunch")
        compileall.compile_dir(folder / "site", quiet=1)   # as pip leaves it
        for number in range(RUNS):
            _lay_out(folder, number)
        (folder / "squeue").write_text("#!/bin/sh\ncat <<'END'\n" + "".join(
            f"2:00:00|N/A|{number}|RUNNING|me|train{number}.{number:08x}|None|n[0-3]\n"
            for number in range(LIVING)) + "END\n")
        (folder / "squeue").chmod(0o755)
        status = [sys.executable, "-m", "safelaunch", "status"]
        ways = {"status NAME": ([*status, "train0"], TARGET), "status JOBID": ([*status, "3"], TARGET),
                "status: the table": (status, TARGET), "status --all": ([*status, "--all"], ""),
                "python -c pass": ([sys.executable, "-c", "pass"], "")}
        found: dict[str, list[tuple[float, float]]] = {title: [] for title in ways}
        fresh = registry.file().read_bytes()
        first = []
        for _ in range(3):
            registry.file().write_bytes(fresh)
            first.append(_time_ms(status, folder))
        for _ in range(ROUNDS + 1):   # the first reads Python's files from the disk
            for title, (argv, _target) in ways.items():
                found[title].append(_time_ms(argv, folder))
        found["status: the first time"], ways["status: the first time"] = [(0.0, 0.0), *first], ([], "")
        kinds = (("", 0), (", processor time", 1))
        return [Figure(title + kind, "ms", tuple(value[index] for value in values[1:]), ways[title][1] * (1 - index))
                for title, values in found.items() for kind, index in kinds]


def _time_ms(argv: list[str], folder: Path) -> tuple[float, float]:
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": f"{folder}/site"}
    start_s, before_s = time.perf_counter(), _used_s()
    subprocess.run(argv, cwd="/", env=env, check=True, capture_output=True, timeout=60)
    return (time.perf_counter() - start_s) * 1e3, (_used_s() - before_s) * 1e3


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _lay_out(folder: Path, number: int) -> None:
    """A run as submit and its leader leave it."""
    run_dir, now = folder / "runs" / f"{number:04d}", time.time()
    for part in ("journal", "control", "attempts/0001", "claims"):
        (run_dir / part).mkdir(parents=True)
    name, run_id, job = f"train{number}", f"{number:08x}", str(number)
    resume = {"dir": f"ckpt{number}", "format": "pattern", "args": "--load {path}", "pattern": "step_{step}.bin"}
    config: dict[str, Any] = {**CONFIG, "name": name, "run_dir": str(run_dir), "resume": resume,
                              "progress": {"step": "auto"}}
    (run_dir / "run.json").write_text(json.dumps({"v": 1, "run_id": run_id, "cwd": str(folder), "config": config}))
    begin = now - 60 * (EVENTS + 1)
    told: list[tuple[float, str, dict[str, Any]]] = [
        (begin, "submitted", {"job": job}),
        (begin, "job_started", {"job": job, "nodes": ["n0", "n1"], "batch_host": "n0"}),
        (begin, "attempt_started", {"attempt": 1, "job": job, "nodes": ["n0", "n1"]})]
    told += [(begin + 60 * minute, "progress", {"attempt": 1, "step": 10 * minute}) for minute in range(1, EVENTS + 1)]
    if number >= LIVING:
        ended_t = now - (3600 if number % 2 else 200_000)
        told.append((ended_t, "completed", {"exit_code": 0, "why": "attempt 1 ended with exit code 0"}))
    else:
        log = b"".join(b"[n0:0]:step %d/40000 loss 2.5, 6000 ms/step\n" % step for step in range(14000, 14400))
        (run_dir / "attempts/0001/main.log").write_bytes(log * 50)
        (run_dir / "pulse.json").write_text(json.dumps(
            {"v": 1, "count": 1, "gen": 1, "job": "1", "t": now, "host": "n0", "attempt": 1, "step": 14400}))
        (folder / f"ckpt{number}").mkdir()
        for step in range(20):
            (folder / f"ckpt{number}" / f"step_{700 * step}.bin").write_bytes(b"x" * 1000)
    (run_dir / "journal" / "000001-n0-1.jsonl").write_bytes(b"".join(
        render(Event(t, 1, seq, "n0", kind, data)) for seq, (t, kind, data) in enumerate(told, 1)))
    registry.register(run_dir, name, run_id, job)


if __name__ == "__main__":
    print(render_table("status: 200 runs", measure()))
