"""The measurements of nodes when steps take longer, as a scenario's nodes answer them; World.bench gives them to the
project.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from safelaunch.decide.nodes.slowness import BENCH_S
from safelaunch.nodehealth.checks.results import OK, CheckReport, CheckResult
from safelaunch.nodehealth.slow.bench import JudgedSpeed, judge_speed, measure_again
from safelaunch.nodehealth.slow.fleet import TOLERANCE
from tests.simulation.hosts import Host

if TYPE_CHECKING:
    from tests.simulation.sim import Sim

ANSWER_S = 20.0
ENDS_S = 2.0   # of a helper that was stopped
NOISE, SLOWER = 0.002, 0.05
DROP = 0.08    # of the training, by one slow node: it waits for it several times a step


class SimBench:
    """The measurements of these nodes, under way."""

    def __init__(self, sim: Sim, nodes: Sequence[str], host: Host) -> None:
        self._sim, self._nodes, self._host, self._start_t = sim, nodes, host, sim.clock.t
        self._judged: tuple[JudgedSpeed, ...] = ()
        self._is_over = False
        self._look_for_ranks()
        sim.benched.append(tuple(nodes))
        if not any(how == "hangs" and node in nodes for node, how in sim.scenario.checks):
            sim.clock.after(ANSWER_S, self._answer)

    def _look_for_ranks(self) -> None:
        """Measured beside a training they would disturb it, and measure nothing."""
        running = [task for attempt in self._sim.attempts for task in attempt.tasks
                   if task.rank in ("loading", "training") and not task.is_doomed and task.host.name in self._nodes]
        if running:
            self._sim.violate(f"nodes are measured beside {len(running)} ranks")

    def _answer(self) -> None:
        if self._is_over:
            return
        there = [node for node in self._nodes if self._sim.hosts[node].is_running
                 and self._sim.net.is_up(self._host, self._sim.hosts[node])]
        silent = {node: "did not answer in time" for node in self._nodes if node not in there}
        rng = random.Random(f"bench {self._sim.scenario.seed} {self._start_t}")

        def measure(nodes: Sequence[str]) -> tuple[CheckReport, ...]:
            return tuple(CheckReport(node, "bench", (CheckResult("memory", "", OK, "", {
                "value": self._rate(node) * rng.gauss(1.0, NOISE), "unit": "GB/s"}),)) for node in nodes)

        rounds = [measure(there)]
        while (again := measure_again(rounds, TOLERANCE)[0]):
            rounds.append(measure(again))
        self._judged = judge_speed(rounds, silent, TOLERANCE)
        self._is_over = True

    def _rate(self, node: str) -> float:
        scenario = self._sim.scenario
        return 100.0 * (1 - SLOWER * (scenario.slow in ("node", "wrong") and node == scenario.slow_node))

    def poll(self) -> bool:
        """Whether all is over."""
        return self._is_over

    def stop(self) -> None:
        """Wait for nobody."""
        if not self._is_over and self._sim.clock.t - self._start_t < BENCH_S - 5.0 and not self._is_leaving():
            self._sim.violate("the measurements were stopped before their time")
        if not self._is_over:
            self._sim.clock.after(ENDS_S, self._end)

    def _end(self) -> None:
        """Until now its helpers have used the nodes."""
        self._look_for_ranks()
        self._is_over = True

    def _is_leaving(self) -> bool:
        """The run ends, or goes to its next job, meanwhile."""
        leader = self._sim.live_leader()
        return leader is None or leader.lead_object is None or leader.lead_object.tasks.is_leaving

    def judged(self) -> tuple[JudgedSpeed, ...]:
        """What they mean, by the project's own judge."""
        return self._judged
