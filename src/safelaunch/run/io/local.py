"""The local cluster: a job is a process of this machine, its nodes are process groups. Needs no Slurm."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from safelaunch.base.io import modes
from safelaunch.base.model import Event
from safelaunch.run.plan import Plan

Started = subprocess.Popen[bytes]
_START = 'export SLURM_JOB_ID=$$; exec bash "$0"'   # the job's id is the process id of its batch shell


def srun_words() -> tuple[str, ...]:
    """What stands for `srun` in a local job's script."""
    return (sys.executable, "-I", "-S", str(Path(__file__).parents[2] / "node" / "localrun.py"))


def submit(run_dir: Path, plan: Plan, env: Mapping[str, str], cwd: str) -> str:
    """Start the job, detached; its id. Raises OSError."""
    count = plan.allocated_nodes
    nodes = "local0" if count == 1 else f"local[0-{count - 1}]"
    kept = {key: value for key, value in env.items() if not key.startswith(("SLURM_", "SBATCH_", "SLURMD_"))}
    process = _start(run_dir, "job.out", {**kept, "SLURM_JOB_NODELIST": nodes, "SAFELAUNCH_NODE": "local0",
                                          "SAFELAUNCH_LOCAL": "1"}, cwd, ["bash", "-c", _START])
    return str(process.pid)


def start_here(run_dir: Path, job: str, env: Mapping[str, str], cwd: str) -> Started:
    """The job script of a run in the job of this shell, detached from its terminal. Raises OSError."""
    return _start(run_dir, f"slurm-{job}.out", env, cwd, ["bash"])


def _start(run_dir: Path, output: str, env: Mapping[str, str], cwd: str, shell: list[str]) -> Started:
    descriptor = os.open(run_dir / output,
                         os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, modes.FILE)
    try:
        modes.open_to_group(descriptor, run_dir)
        return subprocess.Popen([*shell, str(run_dir / "job.sbatch")], env=env, cwd=cwd, stdin=subprocess.DEVNULL,
                                stdout=descriptor, stderr=descriptor, start_new_session=True)
    finally:
        os.close(descriptor)


def follow_log(run_dir: Path) -> Started:
    """`safelaunch logs -f`, out of reach of this terminal's Ctrl-C."""
    return subprocess.Popen([sys.executable, "-m", "safelaunch", "logs", "-f", "-n", "1000000", str(run_dir)],
                            start_new_session=True)


def wait(process: Started, within_s: float) -> None:
    """Wait for its end, so long at most."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(within_s)


def is_alive(run_dir: Path, job: str) -> bool:
    """Whether the batch shell of a local job still runs, told by its command line."""
    try:
        return os.fsencode(run_dir / "job.sbatch") in Path(f"/proc/{int(job)}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return False


def host_of(events: Iterable[Event]) -> str:
    """The machine on which a local run's newest job was started, which alone knows its processes; "" = not known."""
    return next((event.host for event in reversed([*events]) if event.event == "submitted"), "")


def living_jobs(run_dir: Path, events: Iterable[Event]) -> list[str]:
    """The jobs of a local run that still run on this machine."""
    jobs = (str(event.data.get("job")) for event in events if event.event in ("submitted", "job_started"))
    return [job for job in dict.fromkeys(jobs) if is_alive(run_dir, job)]
