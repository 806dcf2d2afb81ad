"""The measurements of node.bench on many nodes at once (slurm.io.noderound): all once, the slowest few again, pairs."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from safelaunch.node.bench.main import NAMES
from safelaunch.nodehealth.checks.results import FAILED, OK, CheckReport, parse_report
from safelaunch.nodehealth.io.nodechecks import ANSWER_S, program_for
from safelaunch.nodehealth.pairs import NodeLink, Pair, PairRate, first_pairs, judge_pairs, second_pairs
from safelaunch.nodehealth.slow.bench import JudgedSpeed, add_links, judge_speed, measure_again
from safelaunch.slurm.io.noderound import NodeRound, Target
from safelaunch.slurm.io.slurm import Command, StartCommand

PAIR_MODULES = ("children", "host", "checks.answer", "checks.disk", "bench.work", "bench.pair")
MODULES = ("addresses", "children", "host", "checks.answer", "checks.disk", "bench.work", "bench.main")
DEADLINE_S = 180.0
PAIR_S = 90.0          # of a pair: half of it to meet, half for PyTorch
PAIRS_AT_ONCE = 32     # both nodes of a pair must run at the same time
PORTS, PORT_TRIES = range(20000, 30000), 4   # below the kernel's own choice (ip(7), ip_local_port_range)

T = TypeVar("T")
Look = Callable[[NodeRound[CheckReport], str], None]   # takes a round under way and its name, returns when it is over
Rounds = Generator[tuple[NodeRound[CheckReport], str], None, T]
PairRounds = tuple[tuple[PairRate, ...], tuple[PairRate, ...]]


@dataclass(frozen=True)
class BenchQuestion:
    """What is asked of each node: the words of a request (docs/nodes.md)."""

    words: Mapping[str, Any] = field(default_factory=dict)
    deadline_s: float = DEADLINE_S

    def of(self, node: str) -> dict[str, Any]:
        """A node's request."""
        return {**self.words, "node": node, "deadline_s": max(1, int(self.deadline_s))}


class BenchedNodes(NamedTuple):
    """All that came back: each round's reports, and who gave none in the first, or none in a later one."""

    rounds: tuple[tuple[CheckReport, ...], ...]
    silent: Mapping[str, str]
    took_s: float
    addresses: Mapping[str, tuple[str, ...]]   # where other nodes reach a node


def bench_nodes(target: Target, env: Mapping[str, str], question: BenchQuestion, tolerance: float,
                look: Look) -> BenchedNodes:
    """Every round, waited for by `look`."""
    return _drive(node_rounds(target, env, question, tolerance), look)


def bench_pairs(target: Target, env: Mapping[str, str], question: BenchQuestion, tolerance: float, look: Look,
                addresses: Mapping[str, tuple[str, ...]]) -> PairRounds:
    """The bus bandwidth of pairs of these nodes: both rounds."""
    return _drive(pair_rounds(target, env, question, tolerance, addresses), look)


def node_rounds(target: Target, env: Mapping[str, str], question: BenchQuestion, tolerance: float,
                begin: StartCommand = Command, keep: Callable[[BenchedNodes], None] = lambda known: None
                ) -> Rounds[BenchedNodes]:
    """The rounds one after the other, started; each is to be over before the next one is asked for. `keep` gets what is
    known, before all is.
    """
    first = _start(target, env, question, begin)
    yield first, "all nodes"
    there = {report.node: report.addresses for report in first.answers}
    known = BenchedNodes((first.answers,), {one.node: one.why for one in first.silent}, first.took_s, there)
    keep(known)
    while (more := measure_again(known.rounds, tolerance))[0]:
        nodes, names = more
        again = BenchQuestion({**question.words, "skip": [name for name in NAMES if name not in names]},
                              question.deadline_s)
        number = len(known.rounds) + 1
        asked = _start(target._replace(nodes=tuple(node for node in nodes if node not in known.silent)), env, again,
                       begin)
        yield asked, f"{'all' if len(nodes) == len(there) else 'the slowest'} again, round {number}"
        late = {one.node: f"answered once; in round {number}: {one.why}" for one in asked.silent}
        known = BenchedNodes((*known.rounds, asked.answers), {**known.silent, **late}, known.took_s + asked.took_s,
                             there)
        keep(known)
    return known


def pair_rounds(target: Target, env: Mapping[str, str], question: BenchQuestion, tolerance: float,
                addresses: Mapping[str, tuple[str, ...]], begin: StartCommand = Command,
                keep: Callable[[int, list[PairRate]], None] = lambda number, rates: None) -> Rounds[PairRounds]:
    """The same of pairs. `keep` gets what is known, before all is."""
    nodes = tuple(addresses)

    def measure(pairs: Sequence[Pair], number: int) -> Rounds[tuple[PairRate, ...]]:
        found: list[PairRate] = []
        for at in range(0, len(pairs), PAIRS_AT_ONCE):
            some = pairs[at:at + PAIRS_AT_ONCE]
            asked = _start_pairs(target, env, question, some, addresses, begin)
            yield asked, f"pairs, round {number}"
            rates = _rates_of(some, asked)
            keep(number, rates)
            found += rates
        return tuple(found)

    first = yield from measure(first_pairs(nodes), 1)
    return first, (yield from measure(second_pairs(first, nodes, tolerance), 2))


class RoundsUnderWay:
    """Rounds, one after the other, while they are under way."""

    def __init__(self, rounds: Rounds[Any]) -> None:
        self._rounds = rounds
        self._round: NodeRound[CheckReport] | None = None
        self._is_over = self._is_stopped = False

    def poll(self) -> bool:
        """Whether all is measured, or was stopped and its helpers have ended. Never blocks."""
        if self._is_over or (self._round is not None and not self._round.poll()):
            return self._is_over
        try:
            if not self._is_stopped:
                self._round, _ = next(self._rounds)
                return False
        except StopIteration:
            pass
        self._is_over = True
        return True

    def stop(self) -> None:
        """Wait for nobody; a round that is not over does not count."""
        self._is_stopped = True
        if self._round is not None:
            self._round.stop()


class PairBench(RoundsUnderWay):
    """The pairs of these nodes, both rounds."""

    def __init__(self, target: Target, env: Mapping[str, str], question: BenchQuestion, tolerance: float,
                 addresses: Mapping[str, tuple[str, ...]], begin: StartCommand = Command) -> None:
        self._tolerance = tolerance
        self._found: tuple[list[PairRate], list[PairRate]] = ([], [])
        super().__init__(pair_rounds(target, env, question, tolerance, addresses, begin,
                                     lambda number, rates: self._found[number - 1].extend(rates)))

    def links(self) -> dict[str, NodeLink]:
        """What is known so far of each node that was in a pair."""
        return judge_pairs(*self._found, self._tolerance)


class NodeBench(RoundsUnderWay):
    """All rounds: of all nodes, of the slowest again, of pairs."""

    def __init__(self, target: Target, env: Mapping[str, str], question: BenchQuestion, tolerance: float,
                 begin: StartCommand = Command) -> None:
        self._tolerance = tolerance
        self._benched: BenchedNodes | None = None
        self._pairs: PairRounds = ((), ())
        super().__init__(self._bench_all(target, env, question, begin))

    def judged(self) -> tuple[JudgedSpeed, ...]:
        """All nodes, the worst first; () = not even one measurement of each was to be had in time."""
        if self._benched is None:
            return ()
        judged = judge_speed(self._benched.rounds, self._benched.silent, self._tolerance)
        return add_links(judged, judge_pairs(*self._pairs, self._tolerance))

    def _bench_all(self, target: Target, env: Mapping[str, str], question: BenchQuestion,
                   begin: StartCommand) -> Rounds[None]:
        """Measure each node by itself, then the links of those that answered, in pairs."""
        def keep(benched: BenchedNodes) -> None:
            self._benched = benched

        self._benched = yield from node_rounds(target, env, question, self._tolerance, begin, keep)
        there = {node: found for node, found in self._benched.addresses.items()
                 if found and node not in self._benched.silent}
        self._pairs = yield from pair_rounds(target, env, question, self._tolerance, there, begin)


def _drive(rounds: Rounds[T], look: Look) -> T:
    while True:
        try:
            look(*next(rounds))
        except StopIteration as end:
            return cast("T", end.value)


def _start_pairs(target: Target, env: Mapping[str, str], question: BenchQuestion, pairs: Sequence[Pair],
                 addresses: Mapping[str, tuple[str, ...]], begin: StartCommand) -> NodeRound[CheckReport]:
    deadline_s = min(question.deadline_s, PAIR_S)
    asks: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        common = {"token": secrets.token_hex(16), "ports": random.sample(PORTS, PORT_TRIES),
                  "addresses": list(addresses[pair.first]), "python": question.words.get("python"),
                  "repeats": question.words.get("repeats"), "deadline_s": max(1, int(deadline_s))}
        asks[pair.first] = {**common, "node": pair.first, "peer": pair.second, "is_first": True}
        asks[pair.second] = {**common, "node": pair.second, "peer": pair.first, "is_first": False}
    return NodeRound(target._replace(nodes=tuple(asks)), env, program_for(target, PAIR_MODULES),
                     deadline_s=deadline_s + ANSWER_S, ask=asks.__getitem__, read=parse_report, begin=begin)


def _rates_of(pairs: Sequence[Pair], asked: NodeRound[CheckReport]) -> list[PairRate]:
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


def _start(target: Target, env: Mapping[str, str], question: BenchQuestion,
           begin: StartCommand) -> NodeRound[CheckReport]:
    return NodeRound(target, env, program_for(target, MODULES), deadline_s=question.deadline_s + ANSWER_S,
                     ask=question.of, read=parse_report, begin=begin)
