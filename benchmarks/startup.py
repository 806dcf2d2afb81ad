"""How long one waits for `safelaunch --help`, and for the demo of a fresh installation."""

from __future__ import annotations

import statistics
import sys

from benchmarks.figure import Figure
from benchmarks.stage import open_stage

HELPS = 31
WARM_UP = 2


def measure() -> list[Figure]:
    """Milliseconds of --help beside an empty Python, seconds of the demo."""
    with open_stage(1) as stage:
        folder = stage.make_workdir()
        ways = {"safelaunch --help": [*stage.argv, "--help"], "python -c pass": [sys.executable, "-c", "pass"]}
        found: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(WARM_UP + HELPS):
            for name, argv in ways.items():
                took_s = stage.time_s(argv, cwd=folder)
                if number >= WARM_UP:
                    found[name].append(took_s * 1e3)
        demo_s = stage.time_s([*stage.argv, "demo", "--dir", str(folder / "demo")], cwd=folder)
    ours, empty = found.values()
    return [
        Figure("safelaunch --help", "ms", tuple(ours), "≤ 80 ms", "python -c pass",
               statistics.median(ours) / statistics.median(empty)),
        Figure("python -c pass", "ms", tuple(empty)),
        Figure("safelaunch demo, to its end", "s", (demo_s,), "≤ 90 s"),
    ]
