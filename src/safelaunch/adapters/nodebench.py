"""The measurements of node.bench on many nodes at once (adapters.noderound): all once, the slowest few again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from safelaunch.adapters.nodechecks import ANSWER_S, QUEUE_S
from safelaunch.adapters.noderound import NodeProgram, NodeRound, Target
from safelaunch.adapters.slurm import Command, StartCommand
from safelaunch.core.checks.results import CheckReport, parse_report
from safelaunch.core.slow.bench import measure_again
from safelaunch.core.slow.fleet import rounds_of
from safelaunch.node.bench.main import NAMES

MODULES = ("children", "checks.answer", "checks.disk", "bench.work", "bench.main")
DEADLINE_S = 180.0

Look = Callable[[NodeRound[CheckReport], str], None]   # takes a round under way and its name, returns when it is over


@dataclass(frozen=True)
class BenchQuestion:
    """What is asked of each node: the words of a request (docs/nodes.md)."""

    words: Mapping[str, Any] = field(default_factory=dict)
    deadline_s: float = DEADLINE_S

    def of(self, node: str) -> dict[str, Any]:
        """A node's request."""
        return {**self.words, "node": node, "deadline_s": max(1, int(self.deadline_s))}


@dataclass(frozen=True)
class BenchedNodes:
    """All that came back: each round's reports, and who gave none in the first, or none in a later one."""

    rounds: tuple[tuple[CheckReport, ...], ...]
    silent: Mapping[str, str]
    took_s: float


def bench_nodes(target: Target, env: Mapping[str, str], question: BenchQuestion, tolerance: float, look: Look,
                begin: StartCommand = Command) -> BenchedNodes:
    """Every round, waited for by `look`."""
    first = _start(target, env, question, begin)
    look(first, "all nodes")
    rounds, silent, took_s = [first.answers], {one.node: one.why for one in first.silent}, first.took_s
    nodes, names = measure_again(first.answers, tolerance)
    if nodes:
        again = BenchQuestion({**question.words, "skip": [name for name in NAMES if name not in names]},
                              question.deadline_s)
        for number in range(2, rounds_of(len(target.nodes)) + 1):
            asked = _start(replace(target, nodes=nodes), env, again, begin)
            look(asked, f"the slowest again, round {number}")
            rounds.append(asked.answers)
            took_s += asked.took_s
            silent.update({one.node: f"answered once; in round {number}: {one.why}" for one in asked.silent})
    return BenchedNodes(tuple(rounds), silent, took_s)


def _start(target: Target, env: Mapping[str, str], question: BenchQuestion,
           begin: StartCommand) -> NodeRound[CheckReport]:
    is_own = not target.job and not target.is_local
    program = NodeProgram(MODULES, start_s=QUEUE_S) if is_own else NodeProgram(MODULES)
    return NodeRound(target, env, program, deadline_s=question.deadline_s + ANSWER_S, ask=question.of,
                     read=parse_report, begin=begin)
