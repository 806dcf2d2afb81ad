"""What the ranks do on all nodes of a job at once: one overlapping helper step a node (slurm.io.noderound).

`Collection` never blocks: the leader's loop polls it. A node that did not answer is evidence, and listed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from safelaunch.base.model import Silent
from safelaunch.slurm.io.noderound import AT_ONCE, NodeProgram, NodeRound, Target
from safelaunch.slurm.io.slurm import Command, StartCommand
from safelaunch.stacks.ranks import NodeReport, ReportReader, keep_main_step
from safelaunch.stacks.stacktext import render_rank

MODULES = ("children", "host", "plain", "proctable", "evidence", "devices", "spy", "leftovers", "cores",
           "ranksoftware", "collect")
DEADLINE_S = 8.0       # of a helper's own work; with 8 ranks and two samples it takes 0.5 s


class Depth(NamedTuple):
    """How closely to look, and what else to do."""

    samples: int = 2           # 0 = of no rank
    gap_s: float = 0.2
    native: bool = False
    gpus: bool = True
    deadline_s: float = DEADLINE_S
    keep_tool: bool = False    # leave a copy of py-spy on the node's own disk, for when the shared one has frozen
    software: bool = False     # which Python, PyTorch and NCCL a rank has
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
        self._target, self._depth = target, depth
        # Nobody waits for a helper step that reads no rank.
        program = NodeProgram(MODULES, is_urgent=depth.samples > 0)
        self._round = NodeRound(target, env, program, deadline_s=depth.deadline_s, ask=self._ask,
                                read=ReportReader().read, at_once=depth.at_once, begin=begin)

    def poll(self) -> Collected | None:
        """Everything, once all nodes have answered or their time is over; None before that. Never blocks."""
        return self.so_far() if self._round.poll() else None

    def so_far(self) -> Collected:
        """What has come in so far."""
        asked = self._round
        return Collected(keep_main_step(asked.answers), asked.silent, dict(asked.lines), asked.took_s)

    def wait(self) -> Collected:
        """Everything, waited for."""
        self._round.wait()
        return self.so_far()

    def _ask(self, node: str) -> Mapping[str, object]:
        depth = self._depth
        return {"job": self._target.job, "node": node, "mark": self._target.mark, "samples": depth.samples,
                "gap_s": depth.gap_s, "native": depth.native, "gpus": depth.gpus, "deadline_s": depth.deadline_s,
                "keep_tool": depth.keep_tool, "software": depth.software, "run": self._target.mark.partition(".")[0],
                "attempt": depth.attempt, "end_left": depth.end_left, "cores": depth.cores}


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
