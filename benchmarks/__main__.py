"""python -m benchmarks [NAME…] → tables on stdout, progress on stderr; exit code 1 when a ratio to a peer is missed.

Needs root, Slurm for the sandbox, and an interpreter that ordinary users can run: `make bench` has all of it. Times of
a machine that others use as well mean little; the ratios are of processes that took turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import checkpoints, leader, nodechecks, restart, scripts, startup, submit, watch
from benchmarks.figure import render_table

TITLES = {
    "submit": "submit: one submission, a whole process",
    "restart": "restart: last rank dead → first line of the next attempt",
    "scripts": "scripts: an sbatch script as it is, beside plain srun and train.yaml",
    "leader": "leader: what the supervisor takes on the batch host",
    "startup": "startup",
    "watch": "watch: a tick of 1,000 runs, and what it asks of Slurm",
    "nodechecks": "nodechecks: the light checks of all nodes before an attempt",
    "checkpoints": "checkpoints: one of 10,000 files",
}
# Modules with tables and options of their own, and how long they may take at most. why scores the corpora that the
# environment names (see there); why_speed takes 25 GB of disk for half of its time; stacks takes root and Slurm.
OTHERS = {"pump": 600.0, "why": 900.0, "why_speed": 3600.0, "stacks": 900.0, "status": 300.0, "hangs": 7200.0,
          "door": 120.0, "growth": 600.0, "slow": 1200.0, "report": 300.0, "logs": 120.0, "notify": 600.0}


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join([*TITLES, *OTHERS])} (default: all)")
    parser.add_argument("--torchrun", type=Path, help="a torchrun to measure beside (default: the interpreter's)")
    parser.add_argument("--ft-launcher", type=Path, help="NVRx's ft_launcher (default: the interpreter's)")
    options = parser.parse_args()
    names = options.names or [*TITLES, *OTHERS]
    if unknown := set(names) - {*TITLES, *OTHERS}:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    print(_machine(), flush=True)
    code = 0
    for name in names:
        start_s = time.monotonic()
        print(f"{name} …", file=sys.stderr, flush=True)
        code |= _run(name, options)
        print(f"{name}: {time.monotonic() - start_s:.0f} s", file=sys.stderr, flush=True)
    return code


def _machine() -> str:
    """What the figures were measured on; the load says how quiet it was."""
    try:
        slurm = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, timeout=10).stdout.strip()
    except OSError:
        slurm = "no Slurm"
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (f"{time.strftime('%Y-%m-%d %H:%M %Z')}: {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
            f"{slurm}, Python {platform.python_version()}, load {load}")


def _run(name: str, options: argparse.Namespace) -> int:
    if name in OTHERS:
        return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], timeout=OTHERS[name]).returncode
    if name == "restart":
        figures = restart.measure(options.torchrun, options.ft_launcher)
    else:
        figures = {"submit": submit.measure, "leader": leader.measure, "scripts": scripts.measure,
                   "startup": startup.measure, "watch": watch.measure, "checkpoints": checkpoints.measure,
                   "nodechecks": nodechecks.measure}[name]()
    print(render_table(TITLES[name], figures), flush=True)
    return int(any(figure.is_missed for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
