"""The checks of node.checks on all nodes of a job at once (slurm.io.noderound), and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from safelaunch.base.model import Silent
from safelaunch.node.checks.answer import DEADLINE_S
from safelaunch.nodehealth.checks import clocks
from safelaunch.nodehealth.checks.results import CheckReport, parse_report
from safelaunch.slurm.io.noderound import NodeProgram, NodeRound, Target
from safelaunch.slurm.io.slurm import Command, StartCommand

MODULES = ("addresses", "children", "host", "plain", "proctable", "evidence", "devices", "checks.answer", "checks.disk",
           "checks.smi", "checks.gpu", "checks.memory", "checks.processes", "porttrial", "checks.network",
           "checks.software", "checks.witnesses", "checks.isolate", "checks.table", "checks.main")
ANSWER_S = 4.0    # from the deadline of a node's checks to its answer: what was said is read, and the interpreter ends
AT_ONCE = 128     # sruns: the light checks of 256 nodes are to take 10 s, and those of one node take up to 4 s
QUEUE_S = 30.0    # for a job of its own to start on an idle node: a scheduler's cycle (slurm.conf(5), sched_interval)


def program_for(target: Target, modules: tuple[str, ...]) -> NodeProgram:
    """These modules, with the time that a node's job of its own may wait for its start."""
    is_own = not target.job and not target.is_local
    return NodeProgram(modules, start_s=QUEUE_S) if is_own else NodeProgram(modules)


@dataclass(frozen=True)
class CheckQuestion:
    """What is asked of the nodes: a level for each, and the words of a request (docs/nodes.md) that all share."""

    levels: Mapping[str, str]
    words: Mapping[str, Any] = field(default_factory=dict)
    limit_s: float | None = None   # of a node's checks; None = their level's

    @property
    def deadline_s(self) -> float:
        """Seconds until the slowest node must have answered, from the start of its helper."""
        return max((self._limit_s(level) for level in self.levels.values()), default=0.0) + ANSWER_S

    def of(self, node: str) -> dict[str, Any]:
        """A node's request."""
        level = self.levels[node]
        return {**self.words, "node": node, "level": level, "deadline_s": max(1, int(self._limit_s(level)))}

    def _limit_s(self, level: str) -> float:
        return DEADLINE_S[level] if self.limit_s is None else self.limit_s


class CheckedNodes(NamedTuple):
    """All that came back: reports, and the nodes that gave none."""

    reports: tuple[CheckReport, ...]
    silent: tuple[Silent, ...]
    took_s: float = 0.0


class NodeChecks:
    """The checks of all nodes, under way."""

    def __init__(self, target: Target, env: Mapping[str, str], question: CheckQuestion,
                 begin: StartCommand = Command) -> None:
        self._round = NodeRound(target, env, program_for(target, MODULES), deadline_s=question.deadline_s,
                                ask=question.of, read=parse_report, at_once=AT_ONCE, begin=begin)

    def poll(self) -> bool:
        """Whether all nodes have answered, or their time is over. Never blocks."""
        return self._round.poll()

    def stop(self) -> None:
        """Wait for nobody: who has not answered by now is silent. `poll` then collects the helpers."""
        self._round.stop()

    def checked(self) -> CheckedNodes:
        """What has come back so far."""
        return CheckedNodes(tuple(map(self._with_clock, self._round.answers)), self._round.silent, self._round.took_s)

    def _with_clock(self, report: CheckReport) -> CheckReport:
        node = report.node
        return report._replace(clock=clocks.bounds(
            report.t, report.took_s, self._round.asked_t[node], self._round.answered_t[node]))

    def wait(self) -> CheckedNodes:
        """Everything, waited for."""
        self._round.wait()
        return self.checked()
