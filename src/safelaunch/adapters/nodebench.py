"""The measurements of node.bench on many nodes at once (adapters.noderound): all once, the slowest few again, pairs."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from safelaunch.adapters.nodechecks import ANSWER_S, program_for
from safelaunch.adapters.noderound import NodeRound, Target
from safelaunch.adapters.slurm import Command, StartCommand
from safelaunch.core.checks.results import FAILED, OK, CheckReport, parse_report
from safelaunch.core.slow.bench import measure_again
from safelaunch.core.slow.fleet import rounds_of
from safelaunch.core.slow.pairs import Pair, PairRate, first_pairs, second_pairs
from safelaunch.node.bench.main import NAMES

PAIR_MODULES = ("children", "checks.answer", "checks.disk", "bench.work", "bench.pair")
MODULES = (*PAIR_MODULES, "bench.main")
DEADLINE_S = 180.0
PAIR_S = 90.0          # of a pair: half of it to meet, half for PyTorch
PAIRS_AT_ONCE = 32     # both nodes of a pair must run at the same time
PORTS, PORT_TRIES = range(20000, 30000), 4   # below the kernel's own choice (ip(7), ip_local_port_range)

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
    addresses: Mapping[str, tuple[str, ...]]   # where other nodes reach a node


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
    addresses = {node: _addresses(line) for node, line in first.lines.items()}
    return BenchedNodes(tuple(rounds), silent, took_s, addresses)


def bench_pairs(target: Target, env: Mapping[str, str], question: BenchQuestion, tolerance: float, look: Look,
                addresses: Mapping[str, tuple[str, ...]]) -> tuple[tuple[PairRate, ...], tuple[PairRate, ...]]:
    """The bus bandwidth of pairs of these nodes: both rounds."""
    nodes = tuple(addresses)

    def measure(pairs: Sequence[Pair], number: int) -> tuple[PairRate, ...]:
        return tuple(rate for begin in range(0, len(pairs), PAIRS_AT_ONCE)
                     for rate in _measure_pairs(target, env, question, pairs[begin:begin + PAIRS_AT_ONCE],
                                                addresses, lambda asked: look(asked, f"pairs, round {number}")))

    first = measure(first_pairs(nodes), 1)
    return first, measure(second_pairs(first, nodes, tolerance), 2)


def _measure_pairs(target: Target, env: Mapping[str, str], question: BenchQuestion, pairs: Sequence[Pair],
                   addresses: Mapping[str, tuple[str, ...]],
                   look: Callable[[NodeRound[CheckReport]], None]) -> list[PairRate]:
    deadline_s = min(question.deadline_s, PAIR_S)
    asks: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        common = {"token": secrets.token_hex(16), "ports": random.sample(PORTS, PORT_TRIES),
                  "addresses": list(addresses[pair.first]), "python": question.words.get("python"),
                  "repeats": question.words.get("repeats"), "deadline_s": max(1, int(deadline_s))}
        asks[pair.first] = {**common, "node": pair.first, "peer": pair.second, "is_first": True}
        asks[pair.second] = {**common, "node": pair.second, "peer": pair.first, "is_first": False}
    asked = NodeRound(replace(target, nodes=tuple(asks)), env, program_for(target, PAIR_MODULES),
                      deadline_s=deadline_s + ANSWER_S, ask=asks.__getitem__, read=parse_report)
    look(asked)
    answers = {report.node: report for report in asked.answers}
    mute = {one.node: one.why for one in asked.silent if one.is_node_mute}
    return [_rate_of(pair, answers, mute) for pair in pairs]


def _rate_of(pair: Pair, answers: Mapping[str, CheckReport], mute: Mapping[str, str]) -> PairRate:
    results = [result for node in pair if node in answers for result in answers[node].results]
    known = [rate for result in results if result.outcome == OK and (rate := result.number("value")) is not None]
    if len(known) == len(pair):
        return PairRate(pair, min(known))
    if any(result.outcome not in (OK, FAILED) for result in results) or len(results) + sum(
            node in mute for node in pair) < len(pair):
        return PairRate(pair, None, "; ".join(result.why for result in results if result.outcome != OK)
                        or "could not be measured", is_unmeasured=True)
    return PairRate(pair, None, "; ".join([*(result.why for result in results if result.outcome == FAILED),
                                           *(f"{node} {mute[node]}" for node in pair if node in mute)]))


def _addresses(line: str) -> tuple[str, ...]:
    told = json.loads(line).get("addresses")
    return tuple(one for one in told if isinstance(one, str)) if isinstance(told, list) else ()


def _start(target: Target, env: Mapping[str, str], question: BenchQuestion,
           begin: StartCommand) -> NodeRound[CheckReport]:
    return NodeRound(target, env, program_for(target, MODULES), deadline_s=question.deadline_s + ANSWER_S,
                     ask=question.of, read=parse_report, begin=begin)
