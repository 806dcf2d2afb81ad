"""python -m benchmarks.logs: how soon `safelaunch logs -f` shows a line, and what it costs meanwhile.

The run has a journal of EVENTS lines, to which one is added every ten seconds. Its log grows by a line
every quarter of a second. The follower's start, which reads all of the journal, is not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.figure import Figure, render_table
from benchmarks.watch import CONFIG
from safelaunch.base.model import Event
from safelaunch.run.journal import render

EVENTS, LINES = 10_000, 240
EVERY_S, JOURNAL_EVERY = 0.25, 40
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def measure() -> list[Figure]:
    """Milliseconds of each line, and the follower's share of a core."""
    with tempfile.TemporaryDirectory(prefix="safelaunch-logs-") as name:
        run_dir = _lay_out(Path(name))
        log = run_dir / "attempts" / "0001" / "main.log"
        process = subprocess.Popen([sys.executable, "-m", "safelaunch", "logs", "-f", "-n", "0", str(run_dir)],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            writer = threading.Thread(target=_write, args=(log, run_dir), daemon=True)
            writer.start()
            delays_ms: list[float] = []
            assert process.stdout is not None
            for line in process.stdout:
                if not delays_ms:
                    begin_s, used_s = time.monotonic(), _used_s(process.pid)
                delays_ms.append((time.time() - float(line.split()[-1])) * 1e3)
                if len(delays_ms) >= LINES - 20:   # those before its start are not shown
                    break
            share = (_used_s(process.pid) - used_s) / (time.monotonic() - begin_s) * 100
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        return [Figure("a line, from its writing to the reader", "ms", tuple(delays_ms), "≤ 1000 ms"),
                Figure("processor time of the follower", "% of a core", (share,), "≤ 1 %")]


def _used_s(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) * TICK_S


def _write(log: Path, run_dir: Path) -> None:
    for number in range(LINES + 40):
        with log.open("a") as file:
            file.write(f"[n0:0]: step {number} written {time.time()}\n")
        if number % JOURNAL_EVERY == 0:
            event = Event(time.time(), 1, EVENTS + 10 + number, "n0", "progress", {"attempt": 1, "step": number})
            with (run_dir / "journal" / "000001-n0-1.jsonl").open("ab") as journal:
                journal.write(render(event))
        time.sleep(EVERY_S)


def _lay_out(folder: Path) -> Path:
    run_dir, begin = folder / "run", time.time() - 60 * (EVENTS + 1)
    for part in ("journal", "control", "claims", "attempts/0001"):
        (run_dir / part).mkdir(parents=True)
    config = {**CONFIG, "name": "followed", "run_dir": str(run_dir)}
    (run_dir / "run.json").write_text(json.dumps({"v": 1, "run_id": "00000001", "cwd": str(folder), "config": config}))
    told = [(begin, "submitted", {"job": "1"}),
            (begin, "job_started", {"job": "1", "nodes": ["n0"], "batch_host": "n0"}),
            (begin, "attempt_started", {"attempt": 1, "job": "1", "nodes": ["n0"]}),
            *((begin + 60 * minute, "progress", {"attempt": 1, "step": minute}) for minute in range(EVENTS))]
    (run_dir / "journal" / "000001-n0-1.jsonl").write_bytes(b"".join(
        render(Event(t, 1, seq, "n0", kind, data)) for seq, (t, kind, data) in enumerate(told, 1)))
    (run_dir / "attempts" / "0001" / "main.log").touch()
    return run_dir


if __name__ == "__main__":
    print(render_table("logs -f: a run of 10,000 events", measure()))
