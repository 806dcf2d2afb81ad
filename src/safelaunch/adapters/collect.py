"""What the ranks do on all nodes of a job at once: one overlapping helper step a node, none waits for another.

The helper's text travels in its environment and its answer comes on stdout, so a frozen filesystem blocks neither.

`Collection` never blocks: the leader's loop polls it. A node that did not answer is evidence, and listed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from safelaunch.adapters.slurm import Command, Result, StartCommand, helper_step
from safelaunch.core.hangs.ranks import NodeReport, ReportReader, Silent, keep_main_step
from safelaunch.core.hangs.stacktext import render_rank
from safelaunch.errors import ParseError

MODULES = ("children", "plain", "proctable", "evidence", "devices", "spy", "leftovers", "cores",
           "collect")   # each after those that it imports
DEADLINE_S = 8.0       # of a helper's own work; with 8 ranks and two samples it takes 0.5 s
START_S = 6.0          # for its step to start: 0.1 s here, and 5 s were seen on busy clusters
STARTS_A_POLL = 8      # each start takes 2 to 5 ms of a loop that has guards to answer
AT_ONCE = 64           # sruns: each is a process of 10 MB on the batch host
# A helper with the attempt's mark would be taken for a rank and ended by a sweep. The other variables name files that a
# loader, a shell or Python would open first, perhaps on the frozen filesystem.
_LEFT_OUT = frozenset(("SAFELAUNCH_MARK", "SLURM_EXPORT_ENV", "BASH_ENV", "ENV", "LD_LIBRARY_PATH", "LD_PRELOAD",
                       "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"))
# The system's own Python lies on the node's disk, the submitter's may be frozen. Whatever happens, the exit code is 0:
# a helper step whose task fails ends the others (seeds: py-spy got EPERM on one node, and seven dumps were lost). A
# helper's memory is the job's (cgroups): when there is none left, the kernel should kill the helper and no rank
# (proc(5), oom_score_adj; not seen in a drill yet).
_RUN = """{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null
for python in /usr/bin/python3 "$1"; do
  if [[ $python ]] && "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    "$python" -I -S -c "$2"
    (($? != 137)) || echo "the look was killed: is no memory left?" >&2
    exit 0
  fi
done
echo '{"v": 1, "node": "", "ranks": [], "notes": ["no Python 3.9 on this node"], "blind": true}'"""
_BOOT = f"""import os, sys, types
for name in {MODULES!r}:
    module = types.ModuleType("safelaunch.node." + name)
    sys.modules[module.__name__] = module
    exec(compile(os.environ.pop("SAFELAUNCH_PART_" + name), name, "exec"), module.__dict__)
    if "safelaunch.node" not in sys.modules:
        sys.modules["safelaunch"] = types.ModuleType("safelaunch")
        sys.modules["safelaunch.node"] = types.ModuleType("safelaunch.node")
    setattr(sys.modules["safelaunch.node"], name, module)
module.main()
os._exit(0)
"""


@dataclass(frozen=True)
class Target:
    """Whose ranks are read. `mark`: "RUN_ID.JOB." of a safelaunch run, "" = all processes of the job's id."""

    job: str
    nodes: tuple[str, ...]
    mark: str = ""
    is_local: bool = False
    has_gpus: bool = False
    python: str = sys.executable

    def helper(self, node: str, argv: Sequence[str]) -> list[str]:
        """A helper step on one node, beside whatever runs there."""
        return helper_step(self.job, node, argv, is_local=self.is_local, has_gpus=self.has_gpus)


@dataclass(frozen=True)
class Depth:
    """How closely to look, and what else to do."""

    samples: int = 2           # 0 = of no rank
    gap_s: float = 0.2
    native: bool = False
    gpus: bool = True
    deadline_s: float = DEADLINE_S
    keep_tool: bool = False    # leave a copy of py-spy on the node's own disk, for when the shared one has frozen
    attempt: int = 0           # ranks of the target's run below this number are left over,
    end_left: bool = False     # ... and are ended
    cores: tuple[tuple[str, ...], float] | None = None   # folders to search for core files, and since when
    at_once: int = AT_ONCE     # nodes


@dataclass(frozen=True)
class Collected:
    """All that came back: reports, the nodes that gave none, and each node's own line."""

    reports: tuple[NodeReport, ...]
    silent: tuple[Silent, ...]
    lines: Mapping[str, str] = field(default_factory=dict)
    took_s: float = 0.0


class Collection:
    """A collection from all nodes, under way."""

    def __init__(self, target: Target, env: Mapping[str, str], depth: Depth, begin: StartCommand) -> None:
        self._target, self._depth, self._begin, self._at_once = target, depth, begin, depth.at_once
        self._env = {key: value for key, value in env.items() if key not in _LEFT_OUT}
        self._env.update(_parts(), SAFELAUNCH_PYTHON=target.python)
        self._start_s = time.monotonic()
        waves = -(-len(target.nodes) // depth.at_once)
        self._until_s = self._start_s + START_S + depth.deadline_s * max(1, waves)
        self._waiting = list(target.nodes)
        self._running: dict[str, Command] = {}
        self._reader = ReportReader()
        self._reports: dict[str, NodeReport] = {}
        self._silent: dict[str, Silent] = {}
        self._lines: dict[str, str] = {}

    def poll(self) -> Collected | None:
        """Everything, once all nodes have answered or their time is over; None before that. Never blocks."""
        for node, command in list(self._running.items()):
            result = command.poll()
            if result is not None:
                del self._running[node]
                self._take(node, result)
        free = min(STARTS_A_POLL, self._at_once - len(self._running), len(self._waiting))
        for _ in range(free if time.monotonic() < self._until_s else 0):
            node = self._waiting.pop(0)
            self._running[node] = self._start(node)
        if self._running or (self._waiting and time.monotonic() < self._until_s):
            return None
        for node in self._waiting:
            self._silent[node] = Silent(node, "was not asked: no time was left", is_node_mute=False)
        self._waiting.clear()
        return self.so_far()

    def so_far(self) -> Collected:
        """What has come in so far."""
        order = {node: number for number, node in enumerate(self._target.nodes)}
        reports = [self._reports[node] for node in sorted(self._reports, key=order.__getitem__)]
        return Collected(keep_main_step(reports),
                         tuple(self._silent[node] for node in sorted(self._silent, key=order.__getitem__)),
                         dict(self._lines), time.monotonic() - self._start_s)

    def wait(self) -> Collected:
        """Everything, waited for."""
        while (collected := self.poll()) is None:
            time.sleep(0.01)
        return collected

    def _start(self, node: str) -> Command:
        depth = self._depth
        options = {"job": self._target.job, "node": node, "mark": self._target.mark, "samples": depth.samples,
                   "gap_s": depth.gap_s, "native": depth.native, "gpus": depth.gpus, "deadline_s": depth.deadline_s,
                   "keep_tool": depth.keep_tool, "run": self._target.mark.partition(".")[0],
                   "attempt": depth.attempt, "end_left": depth.end_left, "cores": depth.cores}
        nice = [] if depth.samples else ["nice", "-n", "10"]   # nobody waits for a helper step that reads no rank
        argv = self._target.helper(node, [*nice, "bash", "-c", _RUN, "collect", self._target.python, _BOOT])
        return self._begin(argv, {**self._env, "SAFELAUNCH_COLLECT": json.dumps(options)}, START_S + depth.deadline_s)

    def _take(self, node: str, result: Result) -> None:
        line = next((line for line in reversed(result.stdout.splitlines()) if line.startswith("{")), "")
        try:
            self._reports[node] = self._reader.read(line, node)
            self._lines[node] = line
        except ParseError:
            self._silent[node] = _silent(node, result)


def start(target: Target, env: Mapping[str, str], depth: Depth | None = None, *,
          begin: StartCommand = Command) -> Collection:
    """A collection from all of the target's nodes, started; `poll` it.

    `env` is that of the helper steps (a job's, or a login shell's without SLURM_*); `begin` starts a command.
    """
    collection = Collection(target, env, depth or Depth(), begin)
    collection.poll()
    return collection


def raw_files(collected: Collected) -> dict[str, str]:
    """File name → text of everything: each node's report as it came, and each rank's stacks for people."""
    files = {f"{node}.json": line + "\n" for node, line in collected.lines.items()}
    for report in collected.reports:
        for rank in report.ranks:
            number = f"{rank.number:05d}" if rank.number is not None else f"unknown-{rank.pid}"
            files[f"rank-{number}-{report.node}.txt"] = render_rank(rank)
    for silent in collected.silent:
        files[f"{silent.node}.silent"] = f"{silent.why}\n"
    return files


def gpu_lines(collected: Collected) -> list[str]:
    """What nvidia-smi said on each node."""
    lines = []
    for report in collected.reports:
        node = report.node
        gpus = json.loads(collected.lines[node]).get("gpus") or {"answer": "was not asked", "gpus": []}
        lines += [f"{node} GPU {gpu['index']}: {gpu['util']} % · {gpu['mem_mb']} of {gpu['mem_total_mb']} MB · "
                  f"{gpu['clock_mhz']} MHz · {gpu['power_w']} W · pids {' '.join(map(str, gpu['pids'])) or 'none'}"
                  for gpu in gpus["gpus"]] or [f"{node}: nvidia-smi: {gpus['answer']}"]
    return lines


def _parts() -> dict[str, str]:
    """The helper's modules as variables: one variable can hold 128 kB (execve(2): MAX_ARG_STRLEN)."""
    folder = Path(__file__).parent.parent / "node"
    return {f"SAFELAUNCH_PART_{name}": (folder / f"{name}.py").read_text() for name in MODULES}


def _silent(node: str, result: Result) -> Silent:
    said = [line for line in result.stderr.strip().splitlines() if line.strip()]
    words = f" ({said[-1][:160]})" if said else ""
    if result.returncode is None:
        return Silent(node, f"did not answer in time{words}")
    if result.is_unknown:
        return Silent(node, f"could not be asked: Slurm did not answer{words}", is_node_mute=False)
    if result.returncode == 0:
        return Silent(node, f"its helper gave no report{words}")
    # srun itself failed (a job that has just ended, an unknown option, no srun): that says nothing about the node.
    is_lost = "Job step aborted" in result.stderr or result.returncode > 128
    return Silent(node, f"its helper ended with exit code {result.returncode}{words}", is_node_mute=is_lost)
