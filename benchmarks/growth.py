"""python -m benchmarks.growth: what long runs and many guards take; tests/test_growth.py counts it for small ones.

Journals: processor time of whole processes, less that of `--version`, and of what a new leader does with its journal.
Guards: real connections of node.guard.link in PROCESSES processes that call one real server at the same time.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, render_table
from benchmarks.watch import CONFIG
from safelaunch.base.model import Event
from safelaunch.guard.io.control import ControlServer
from safelaunch.node.guard.link import Link
from safelaunch.run.fold.folding import fold
from safelaunch.run.io import journal
from safelaunch.run.journal import render
from safelaunch.supervisor.io.attempt import raise_limit

RUNS = ((200, 1), (2_000, 1), (20, 5_000))   # attempts, and lines of steps of each
GUARDS, PROCESSES, CROWD_S = (1_000, 4_000, 10_000), 12, 120.0
ROUNDS = 3
TOKEN = "a" * 64


def measure() -> list[Figure]:
    """Seconds of processor time, and of the wall for crowds."""
    raise_limit()
    figures = []
    with tempfile.TemporaryDirectory(prefix="safelaunch-growth-") as name:
        base_s = min(_verb_s(["--version"], name) for _ in range(ROUNDS))
        for attempts, steps in RUNS:
            run_dir = _lay_out(Path(name) / f"{attempts}x{steps}", attempts, steps)
            title = f"{attempts:,} attempts of {9 + steps:,} events"
            for verb in ("status", "why", "events", "report"):
                values = tuple(_verb_s([verb, str(run_dir)], name) - base_s for _ in range(ROUNDS))
                is_asked = (verb, attempts) == ("status", 2_000)
                figures.append(Figure(f"{title}: `{verb}`", "s", values, "≤ 0.3 s" if is_asked else ""))
            values = tuple(_lead_s(run_dir) for _ in range(ROUNDS))
            figures.append(Figure(f"{title}: a new leader", "s", values, "≤ 1.5 s" if steps > 1 else ""))
    for count in GUARDS:
        greeted, all_s = _crowd(count)
        figures += [Figure(f"{count:,} guards at once: all greeted", "s", (all_s,), "≤ 5 s"),
                    Figure(f"{count:,} guards at once: never greeted", "", (float(count - greeted),), "0")]
    return figures


def _lay_out(run_dir: Path, attempts: int, steps: int) -> Path:
    """A run whose attempts have all failed."""
    (run_dir / "journal").mkdir(parents=True)
    (run_dir / "claims").mkdir()
    config = {**CONFIG, "run_dir": str(run_dir)}
    (run_dir / "run.json").write_text(json.dumps(
        {"v": 1, "run_id": "00000001", "name": "train", "cwd": "/", "config": config}))
    (run_dir / "submit.env").write_bytes(b"PATH=/usr/bin:/bin")
    start_t = time.time() - 3600.0 * 24
    lines = (render(Event(start_t + seq * 0.01, 2, seq, "n0", event, data))
             for seq, (event, data) in enumerate(_said(attempts, steps), start=1))
    (run_dir / "journal" / "000002-n0-1.jsonl").write_bytes(b"".join(lines))
    return run_dir


def _said(attempts: int, steps: int) -> Iterator[tuple[str, dict[str, Any]]]:
    nodes = [f"n{number:04d}" for number in range(64)]
    yield "submitted", {"job": "77"}
    yield "job_started", {"job": "77", "nodes": nodes, "batch_host": "n0000", "restart_count": 0}
    for number in range(1, attempts + 1):
        own: dict[str, Any] = {"attempt": number}
        yield "decision", {**own, "row": "launch", "action": "launch", "why": f"attempt {number - 1} failed"}
        yield "intent", {**own, "claim": number, "act": "launch", "job": "77", "nodes": nodes}
        yield "attempt_started", {**own, "job": "77", "nodes": nodes, "port": 20000, "resume_step": number * 10,
                                  "resume_path": f"/ckpt/step_{number * 10}", "why": "a restart"}
        yield "outcome", {"claim": number, "act": "launch", "ok": True}
        yield from (("progress", {**own, "step": number * 10 + step}) for step in range(1, steps + 1))
        yield "decision", {**own, "row": "task_failed", "action": "end", "why": "ending the attempt: exit code 1"}
        yield "failure", {**own, "exit_code": 1, "exits": [f"task {n} on n{n:04d}: exit code 1" for n in range(64)]}
        yield "verdict", {**own, "category": "cuda_error", "summary": "a GPU kernel touched memory it may not touch",
                          "confidence": 0.75, "action": "restart", "node": "n0000", "task": 0, "fingerprint": "x",
                          "suspects": ["n0000"], "evidence": ["RuntimeError: CUDA error"]}
        yield "attempt_ended", {**own, "how": "failed", "exit_code": 1, "asked": "task_failed", "not_before": None}
        yield "fenced", own


def _verb_s(argv: list[str], folder: str) -> float:
    env = {**os.environ, "XDG_STATE_HOME": f"{folder}/state"}
    before_s = _used_s()
    subprocess.run([sys.executable, "-m", "safelaunch", *argv], cwd=folder, env=env, capture_output=True, timeout=300)
    return _used_s() - before_s


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _lead_s(run_dir: Path) -> float:
    start_s = time.process_time()
    fold(journal.merge_raw(journal.read_raw(run_dir)).events)
    return time.process_time() - start_s


def _crowd(count: int) -> tuple[int, float]:
    """How many guards were greeted, and after how long the last one; all of them call at the same time."""
    with selectors.DefaultSelector() as selector:
        server = ControlServer(selector, TOKEN, 0, "127.0.0.1")
        start_s = time.monotonic() + 2.0
        pids = [_call(server.port, range(first, count, PROCESSES), start_s) for first in range(PROCESSES)]
        while len(server.guards) < count and time.monotonic() < start_s + CROWD_S:
            for key, _ in selector.select(0.1):
                key.data(time.monotonic())
            server.tick(time.monotonic(), 3.0)
        greeted, all_s = len(server.guards), time.monotonic() - start_s
        server.close()
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return greeted, all_s


def _call(port: int, tasks: range, start_s: float) -> int:
    """A process with so many guards' connections, from that time on; its id."""
    pid = os.fork()
    if pid:
        return pid
    links = [Link(f"127.0.0.1:{port}", None, TOKEN, {"node": f"n{task // 8}", "task": task, "attempt": 1})
             for task in tasks]
    time.sleep(max(0.0, start_s - time.monotonic()))
    while True:
        now_s = time.monotonic()
        for link in links:
            for message in link.messages(now_s):
                if message["do"] == "ping":
                    link.say({"ev": "pong"})
        time.sleep(max(0.0, now_s + 0.25 - time.monotonic()))


if __name__ == "__main__":
    print(render_table("growth: long runs and many guards", measure()))
