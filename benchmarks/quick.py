"""python -m benchmarks.quick [NAME…] → one row in history.jsonl (with all figures only), and the block in the docs.

Small runs of the benchmarks beside this file, each beside its peer, in four minutes on two cores. Takes root and Slurm.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import history, leader, restart, stacks, submit, why_speed, whylogs
from benchmarks.figure import ratio_of_pairs
from benchmarks.history import Measured, Row
from benchmarks.stage import SLURM_DEFAULTS, open_stage
from safelaunch.why.read.scan import Compiled
from safelaunch.why.rulebook import RULES

RESTART_ROUNDS, RESTARTS = 3, 8
SUBMIT_PAIRS = 9
LEADER_NODES, LEADER_TASKS, LEADER_WARM_UP_S, LEADER_SPAN_S = 4, 8, 8.0, 20.0
WHY_MB, WHY_PAIRS = 300, 5
STACKS_ROUNDS = 5


def measure_restart() -> Measured:
    """Seconds from the last death to the first line; the two take turns, and the ratio is of their medians."""
    with open_stage(restart.NODES, conf=SLURM_DEFAULTS) as stage:
        ours, bash, _ = restart.measure_in_turns(stage, RESTART_ROUNDS, RESTARTS)
    return by_medians(ours, bash, "s")


def measure_submit() -> Measured:
    """Milliseconds of a whole process."""
    found = {figure.name: figure.values for figure in submit.measure(SUBMIT_PAIRS)}
    return by_pairs(found["safelaunch submit"], found["submitit"], "ms")


def measure_leader() -> Measured:
    """Shares of a core, of the same seconds."""
    figures = leader.measure(LEADER_NODES, LEADER_TASKS, LEADER_WARM_UP_S, LEADER_SPAN_S)
    found = {figure.name: figure.values for figure in figures}
    return by_medians(found["leader: CPU"], found["srun: CPU"], "% of a core")


def measure_why() -> Measured:
    """Seconds of processor time, the interpreter's start included."""
    with tempfile.TemporaryDirectory(prefix="safelaunch-why-") as name:
        log, literals = Path(name, "log"), Path(name, "literals")
        literals.write_bytes(b"".join(text + b"\n" for text in Compiled(RULES).literals if b"\n" not in text))
        whylogs.write(log, WHY_MB << 20, "end")
        grep = ["env", "LC_ALL=C", "grep", "-a", "-c", "-F", "-f", str(literals), str(log)]
        pairs = [(why_speed.why(log).cpu_s, why_speed.run(grep).cpu_s) for _ in range(WHY_PAIRS)]
    return by_pairs([ours for ours, _ in pairs], [theirs for _, theirs in pairs], "s")


def measure_stacks() -> Measured:
    """Seconds of a whole process on a job whose ranks all answer."""
    return by_pairs(*stacks.measure_in_turns(STACKS_ROUNDS), "s")


MEASURES: dict[str, Callable[[], Measured]] = {
    "restart": measure_restart, "submit": measure_submit, "leader": measure_leader, "why": measure_why,
    "stacks": measure_stacks,
}


def by_medians(ours: Sequence[float], theirs: Sequence[float], unit: str) -> Measured:
    """The ratio of the medians: for values in rounds."""
    own, other = statistics.median(ours), statistics.median(theirs)
    return Measured(own / other, own, other, unit, len(ours))


def by_pairs(ours: Sequence[float], theirs: Sequence[float], unit: str) -> Measured:
    """The median of the ratios: for values measured one right after the other."""
    return Measured(ratio_of_pairs(ours, theirs), statistics.median(ours), statistics.median(theirs), unit, len(ours))


def main() -> int:
    """0, whatever the ratios are: history says what has grown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(MEASURES)}: shown, not written")
    names = parser.parse_args().names
    if unknown := set(names) - set(MEASURES):
        parser.error(f"no figure {', '.join(sorted(unknown))}")
    start_s, load = time.monotonic(), os.getloadavg()[0]
    figures = {}
    for name in names or MEASURES:
        begin_s = time.monotonic()
        figures[name] = MEASURES[name]()
        print(f"{name}: {figures[name].ratio:.2f} × {history.FIGURES[name][1]} ({figures[name].ours:.3g} and "
              f"{figures[name].peer:.3g} {figures[name].unit}; {time.monotonic() - begin_s:.0f} s)", flush=True)
    if names:
        return 0
    commit, is_dirty = _commit()
    row = Row(commit, is_dirty, time.strftime("%Y-%m-%dT%H:%M:%S%z"), os.cpu_count() or 1, (load, os.getloadavg()[0]),
              _slurm(), platform.python_version(), platform.release(), time.monotonic() - start_s, figures)
    with history.HISTORY.open("a") as file:
        file.write(history.render_row(row))
    rows = history.read_rows()
    history.update_docs(rows)
    for warning in history.find_worse(rows):
        print(f"WARNING: bench-quick: {warning}")
    return 0


def _commit() -> tuple[str, bool]:
    """(short hash, whether what was measured differs from it)."""
    commit = subprocess.run([*history.GIT, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=True).stdout
    changes = subprocess.run([*history.GIT, "status", "--porcelain", "--", *history.PRODUCT, "benchmarks/*.py"],
                             capture_output=True, text=True, check=True).stdout
    return commit.strip(), bool(changes.strip())


def _slurm() -> str:
    """Its release, e.g. 22.05.8."""
    said = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, timeout=10, check=True).stdout
    return said.split()[-1]


if __name__ == "__main__":
    sys.exit(main())
