"""What the supervisor takes on the batch host while 64 ranks write 1 MB/s of log: memory, and shares of a core.

CPU times are the kernel's own (schedstat, nanoseconds), so a busy machine distorts them little. The leader's probes are
forks that live for milliseconds: what they take is the leader's cutime and cstime, counted in ticks of 10 ms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.stage import Stage, open_stage
from safelaunch.errors import SandboxError

NODES, TASKS = 8, 8
WARM_UP_S, SPAN_S, SAMPLE_S = 15.0, 60.0, 5.0
START_DEADLINE_S = 90.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
TRAIN_YAML = """\
name: leader
command: /usr/bin/python3 -S -E writer.py
slurm: {{nodes: {nodes}, ntasks_per_node: {tasks}, time: 30}}
launch: {{with: srun}}
"""
# 16 kB a second and rank in lines as trainers print them, in ten portions.
WRITER = """\
import sys, time
step, due = 0, time.monotonic()
while True:
    for _ in range(16):
        step += 1
        sys.stdout.write("step %8d loss 2.3141 lr 3.000e-04 grad_norm 0.8312 tokens/s 182731.4 mem 61.2GB\\n" % step)
    sys.stdout.flush()
    due += 0.083
    time.sleep(max(0.0, due - time.monotonic()))
"""


@dataclass(frozen=True)
class Process:
    """One process and what it had taken so far."""

    pid: int
    cpu_s: float
    children_cpu_s: float
    rss_mb: float
    peak_mb: float


def measure(nodes: int = NODES, tasks: int = TASKS, warm_up_s: float = WARM_UP_S,
            span_s: float = SPAN_S) -> list[Figure]:
    """Memory and CPU of the leader, its courier, the pump, srun, which carries the same log, and a node guard."""
    with open_stage(nodes, cpus=16) as stage:
        folder = stage.make_workdir()
        (folder / "train.yaml").write_text(TRAIN_YAML.format(nodes=nodes, tasks=tasks))
        (folder / "writer.py").write_text(WRITER)
        stage.run([*stage.argv, "submit", "train.yaml"], cwd=folder)
        log = folder / "runs" / "leader" / "attempts" / "0001" / "main.log"
        _wait_until(lambda: log.exists() and log.stat().st_size > nodes * tasks * 4096, "the log does not grow")
        time.sleep(warm_up_s)
        return _watch(stage, folder / "runs" / "leader", log, span_s)


def _watch(stage: Stage, run_dir: Path, log: Path, length_s: float) -> list[Figure]:
    pids = _find(stage, run_dir)
    start_s, size = time.monotonic(), log.stat().st_size
    samples = [{name: [_look(pid) for pid in group] for name, group in pids.items()}]
    while time.monotonic() - start_s < length_s:
        time.sleep(SAMPLE_S)
        samples.append({name: [_look(pid) for pid in group] for name, group in pids.items()})
    span_s = time.monotonic() - start_s
    figures = [Figure("the log grows by", "MB/s", ((log.stat().st_size - size) / 1e6 / span_s,))]
    targets = {"leader": ("≤ 40 MB", "≤ 0.3 %")}
    for name in pids:
        memory, cpu = targets.get(name, ("", ""))
        first, last = samples[0][name], samples[-1][name]
        share = sum(b.cpu_s - a.cpu_s for a, b in zip(first, last, strict=True)) / span_s / len(first) * 100
        children = sum(b.children_cpu_s - a.children_cpu_s for a, b in zip(first, last, strict=True)) / span_s * 100
        resident = tuple(process.rss_mb for sample in samples for process in sample[name])
        figures.append(Figure(f"{name}: resident", "MB", resident, memory))
        figures.append(Figure(f"{name}: resident, its peak", "MB", (max(s.peak_mb for s in last),), memory))
        figures.append(Figure(f"{name}: CPU", "% of a core", (share,), cpu))
        if name == "leader":
            figures.append(Figure("leader's disposable children: CPU", "% of a core", (children,)))
    return figures


def _find(stage: Stage, run_dir: Path) -> dict[str, list[int]]:
    """Pids by part; every node's processes are in its own namespace."""
    on_batch_host = {pid: _words(pid) for pid in stage.sandbox.machine(stage.sandbox.nodes[0]).pids()}
    leaders = [pid for pid, words in on_batch_host.items()
               if str(run_dir) in words and any(
                   "safelaunch.loop" in word or word.endswith("/injob.py") for word in words)]
    leader = next((pid for pid in leaders if _parent(pid) not in leaders), None)
    pump = next((pid for pid, words in on_batch_host.items()
                 if any(word.endswith("/node/pump.py") for word in words)), None)
    # It has forked a child that carries nothing; the standby is another srun's step.
    sruns = [pid for pid, words in on_batch_host.items() if _program(pid) == "srun" and "safelaunch-node" in words]
    srun = next((pid for pid in sruns if _parent(pid) not in sruns), None)
    if leader is None or pump is None or srun is None:
        raise SandboxError(f"no supervisor was found among {list(on_batch_host.values())}")
    guards = [pid for node in stage.sandbox.nodes for pid in stage.sandbox.machine(node).pids()
              if any("What starts a node guard" in word for word in _words(pid)) and _program(pid).startswith("python")]
    courier = [pid for pid in leaders if _parent(pid) == leader][:1]
    return {"leader": [leader], "courier": courier, "pump": [pump], "srun": [srun],
            f"a guard (mean of {len(guards)})": guards}


def _look(pid: int) -> Process:
    proc = Path(f"/proc/{pid}")
    stat = (proc / "stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    threads = [int((thread / "schedstat").read_text().split()[0])
               for thread in (proc / "task").iterdir()]   # srun's second one carries the log
    return Process(pid, sum(threads) / 1e9,
                   (int(stat[13]) + int(stat[14])) * TICK_S, _mb(status["VmRSS"]), _mb(status["VmHWM"]))


def _mb(text: str) -> float:
    return int(text.split()[0]) * 1024 / 1e6


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _program(pid: int) -> str:
    """Name of the executable file."""
    try:
        return Path(f"/proc/{pid}/exe").resolve().name
    except OSError:
        return ""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _wait_until(is_so: Callable[[], bool], complaint: str) -> None:
    end_s = time.monotonic() + START_DEADLINE_S
    while not is_so():
        if time.monotonic() > end_s:
            raise SandboxError(f"{complaint} within {START_DEADLINE_S:.0f} s")
        time.sleep(0.2)
