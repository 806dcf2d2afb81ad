"""python -m benchmarks.notify: the gap of a restart while a message to people hangs, and without one, in turns.

The message on the first restart goes to a program that sleeps until its deadline, beside all further restarts. Takes
root and Slurm, for the sandbox.
"""

from __future__ import annotations

import statistics

from benchmarks.figure import Figure, render_table
from benchmarks.restart import NODES, measure_ours
from benchmarks.stage import SLURM_DEFAULTS, open_stage

ROUNDS, RESTARTS = 3, 20
TELLS = "notify: {when: [restarted], command: [/bin/sleep, '60']}\n"


def measure() -> list[Figure]:
    """Seconds from the last death to the first line of the next attempt."""
    without: list[float] = []
    beside: list[float] = []
    with open_stage(NODES, conf=SLURM_DEFAULTS) as stage:
        for _ in range(ROUNDS):
            without += measure_ours(stage, RESTARTS)[0]
            beside += measure_ours(stage, RESTARTS, TELLS)[0]
    return [Figure("a restart beside a message that hangs", "s", tuple(beside), "as without", "without",
                   statistics.median(beside) / statistics.median(without)),
            Figure("a restart without a message", "s", tuple(without))]


if __name__ == "__main__":
    print(render_table("notify: a message beside restarts", measure()))
