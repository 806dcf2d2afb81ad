"""The checks of nodes before and after an attempt, as a scenario's nodes answer them; World.check gives them to the
project.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from safelaunch.base.model import Silent
from safelaunch.node.checks.answer import FULL
from safelaunch.nodehealth.checks.results import FAILED, OK, CheckReport, CheckResult
from safelaunch.nodehealth.io.nodechecks import QUEUE_S, CheckedNodes
from safelaunch.nodehealth.pairs import NodeLink, Pair, PairRate, first_pairs, judge_pairs, second_pairs
from safelaunch.nodehealth.slow.fleet import TOLERANCE
from safelaunch.supervisor.nodes.bootchecks import STARTS_S
from tests.simulation.hosts import Host

if TYPE_CHECKING:
    from tests.simulation.process import Actor
    from tests.simulation.sim import Sim

ANSWER_S = 1.5
PAIR_S = 2.0         # an all-reduce of a pair
FULL_S = 40.0        # a full check: longer than most attempts of a simulated run go on
LATE_S = 2.0         # the loop's own tick and a helper's end
# Faults in which the one who asks stands still, so that its deadline passes unseen.
STANDS_STILL = frozenset(("leader_pauses", "leader_dies", "leader_dies_at_call", "batch_silent", "batch_crashes",
                          "worker_silent", "worker_crashes", "freeze", "freeze_one", "away", "flaky", "unreadable",
                          "refuses"))


class SimPairs:
    """The all-reduces of pairs of these nodes, under way: a node that `breaks_pairs` lets its partner wait."""

    def __init__(self, sim: Sim, nodes: Sequence[str], asker: Actor, each_s: float) -> None:
        self._sim, self._nodes, self._asker, self._host = sim, nodes, asker, asker.host
        self._found: list[list[PairRate]] = []
        self._is_over = False
        self._each_s = each_s
        self._start(first_pairs(nodes))

    def _start(self, pairs: Sequence[Pair]) -> None:
        running = [task for attempt in self._sim.attempts for task in attempt.tasks
                   if task.rank in ("loading", "training") and not task.is_doomed and task.host.name in self._nodes]
        if running:
            self._sim.violate(f"an all-reduce beside {len(running)} ranks")
        rates = [self._rate(pair) for pair in pairs]
        took_s = self._each_s if any(one.gb_s is None for one in rates) else PAIR_S
        self._sim.clock.after(took_s, lambda: self._end(rates))

    def _rate(self, pair: Pair) -> PairRate:
        how = dict(self._sim.scenario.checks)
        is_well = all(how.get(node) != "breaks_pairs" and self._sim.hosts[node].is_running
                      and self._sim.net.is_up(self._host, self._sim.hosts[node]) for node in pair)
        self._sim.failed_checks.update(node for node in pair if how.get(node) == "breaks_pairs")
        return PairRate(pair, 10.0 if is_well else None, "" if is_well else "no answer in time")

    def _end(self, rates: list[PairRate]) -> None:
        if self._is_over or self._asker.process.dead:   # who begins the second round
            return
        self._found.append(rates)
        pairs = second_pairs(rates, self._nodes, TOLERANCE) if len(self._found) == 1 else ()
        if pairs:
            self._start(pairs)
        else:
            self._is_over = True

    def poll(self) -> bool:
        """Whether all is over."""
        return self._is_over

    def stop(self) -> None:
        """Wait for nobody."""
        self._is_over = True

    def links(self) -> dict[str, NodeLink]:
        """What they mean, by the project's own judge."""
        first, second = (*self._found, [], [])[:2]
        return judge_pairs(first, second, TOLERANCE)


class SimPort:
    """A port on which nodes that check it find nobody: their answers are the scenario's."""

    def take(self) -> None:
        """Nobody has come."""

    def close(self) -> None:
        """It is free again."""


class SimChecks:
    """The checks of these nodes, under way."""

    def __init__(self, sim: Sim, nodes: Sequence[str], host: Host, level: str, limit_s: float) -> None:
        self._sim, self._host, self._start_t = sim, host, sim.clock.t
        self._level = level
        # Of all of it, as the supervisor counts; a full check may wait for a job of its own, and nobody waits for it.
        self._limit_s = limit_s + STARTS_S + (STARTS_S + QUEUE_S if level == FULL else 0.0)
        self._reports: list[CheckReport] = []
        self._open = list(nodes)
        self._is_stopped = False
        used = [node for attempt, tasks in sim.writing.items() if tasks for node in attempt.nodes if node.name in nodes]
        if level == FULL and used:
            sim.violate(f"a full check of {[node.name for node in used]}, which an attempt uses")
        sim.clock.after(ANSWER_S if level != FULL else FULL_S, self._answer)

    def _answer(self) -> None:
        how, silent = dict(self._sim.scenario.checks), {"hangs", "hangs_fully"} if self._level == FULL else {"hangs"}
        for node in [one for one in self._open if not self._is_stopped]:
            there = self._sim.hosts[node]
            if how.get(node) in silent or not there.is_running or not self._sim.net.is_up(self._host, there):
                continue
            self._open.remove(node)
            self._reports.append(self._report(node, how.get(node, "")))

    def _report(self, node: str, how: str) -> CheckReport:
        if how == "babbles":   # an answer of which nothing is understood
            return CheckReport(node, "", ())
        is_bad = how == "fails" or (how == "fails_fully" and self._level == FULL) or (
            how == "fails_once" and node not in self._sim.failed_checks)
        if is_bad:
            self._sim.failed_checks.add(node)
        return CheckReport(node, self._level, (
            CheckResult("shm", "", FAILED if is_bad else OK, "it is missing" if is_bad else "", {}),),
            addresses=(node,))

    def poll(self) -> bool:
        """Whether all have answered, or nobody waits any more."""
        return self._is_stopped or not self._open

    def stop(self) -> None:
        """Wait for nobody."""
        if self.poll():
            return
        self._is_stopped = True
        took_s = self._sim.clock.t - self._start_t
        kinds = {fault.kind for fault in self._sim.scenario.faults}
        if took_s > self._limit_s + LATE_S and not kinds & STANDS_STILL:
            self._sim.violate(f"the checks of nodes have taken {took_s:.1f} s, of {self._limit_s:g}")

    def checked(self) -> CheckedNodes:
        """What has come back so far."""
        silent = tuple(Silent(node, "did not answer in time") for node in self._open)
        return CheckedNodes(tuple(self._reports), silent, self._sim.clock.t - self._start_t)
