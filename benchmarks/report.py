"""python -m benchmarks.report: what `safelaunch report` takes for a run of 10⁶ log lines, 10⁵ steps and 10 attempts.

Whole processes; the run folder lies on this machine's disk. One line in ten of the log names a step with its loss and
time, the others are what trainings write beside that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figure import Figure, render_table
from benchmarks.watch import CONFIG
from safelaunch.base.model import Event
from safelaunch.run.journal import render

LINES, STEPS, ATTEMPTS = 1_000_000, 100_000, 10
STEP_S, SAVED_EVERY = 2.0, 500
ROUNDS = 5


def measure() -> list[Figure]:
    """Seconds of a report and of its JSON, and the bytes of the page."""
    with tempfile.TemporaryDirectory(prefix="safelaunch-report-") as name:
        folder = Path(name)
        run_dir, page = _lay_out(folder), folder / "page.html"
        ways = {"report": ["-o", str(page)], "report --json": ["--json"]}
        found: dict[str, list[float]] = {title: [] for title in ways}
        for _ in range(ROUNDS):
            for title, words in ways.items():
                found[title].append(_time_s([sys.executable, "-m", "safelaunch", "report", str(run_dir), *words]))
        size = page.stat().st_size / 1e6
        return [Figure("report", "s", tuple(found["report"]), "≤ 3 s"),
                Figure("report --json", "s", tuple(found["report --json"])),
                Figure("the page", "MB", (size,), "< 1 MB")]


def _time_s(argv: list[str]) -> float:
    start_s = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True, timeout=120, env=os.environ)
    return time.perf_counter() - start_s


def _lay_out(folder: Path) -> Path:
    """A run as its leaders leave it: each attempt goes back to the last checkpoint but its last steps."""
    run_dir = folder / "run"
    for part in ("journal", "control", "claims"):
        (run_dir / part).mkdir(parents=True)
    config = {**CONFIG, "name": "long", "run_dir": str(run_dir)}
    (run_dir / "run.json").write_text(json.dumps({"v": 1, "run_id": "00000001", "cwd": str(folder), "config": config}))
    nodes = [f"n{number}" for number in range(16)]
    t = time.time() - (STEPS + 60 * ATTEMPTS) * STEP_S
    events: list[tuple[float, str, dict[str, object]]] = [
        (t, "submitted", {"job": "1"}), (t + 30, "job_started", {"job": "1", "nodes": nodes, "batch_host": "n0"})]
    first = 0
    for number in range(1, ATTEMPTS + 1):
        last = number * STEPS // ATTEMPTS + 100
        t += 60
        events.append((t, "attempt_started", {"attempt": number, "job": "1", "nodes": nodes, "resume_step": first}))
        _write_log(run_dir / "attempts" / f"{number:04d}", first, last)
        for step in range(first + 30, last, 30):
            t += 30 * STEP_S
            events.append((t, "progress", {"attempt": number, "step": step}))
        first = last // SAVED_EVERY * SAVED_EVERY
        events += [(t + 1, "checkpoint", {"attempt": number, "step": first}),
                   (t + 2, "attempt_ended", {"attempt": number, "how": "failed", "exit_code": 1})]
    lines = b"".join(render(Event(at, 1, number, "n0", kind, data)) for number, (at, kind, data) in enumerate(events))
    (run_dir / "journal" / "000001-n0-1.jsonl").write_bytes(lines)
    return run_dir


def _write_log(folder: Path, first: int, last: int) -> None:
    folder.mkdir(parents=True)
    beside = "".join(f"[n{number}:{8 * number}]: 2026-11-01 12:00:00,000 INFO reading shard {number} of the data\n"
                     for number in range(LINES // STEPS - 1))
    with (folder / "main.log").open("w") as file:
        for step in range(first + 1, last + 1):
            loss, seconds = 2 + 8 / (1 + step / 1000) + step * 7919 % 97 / 500, STEP_S + step * 31 % 41 / 1000
            file.write(f"[n0:0]: step {step} loss: {loss:.4f} step_time: {seconds:.3f}\n{beside}")


if __name__ == "__main__":
    print(render_table("report: a run of 10⁶ log lines and 10⁵ steps", measure()))
