"""The measurements of many nodes while they are under way: round after round, and stopped in the middle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from safelaunch.nodehealth.io.nodebench import BenchQuestion, NodeBench
from safelaunch.nodehealth.slow.bench import Speed
from safelaunch.nodehealth.slow.fleet import LOOK
from safelaunch.slurm.io.noderound import Target
from safelaunch.slurm.io.slurm import Command

NODES = ("n0", "n1", "n2", "n3")


class Helpers:
    """Starts a shell in place of each helper, which answers as its node would."""

    def __init__(self, mute: str = "") -> None:
        self.mute, self.asked = mute, list[tuple[str, bool]]()   # node, whether it is asked for a pair

    def __call__(self, argv: Sequence[str], env: Mapping[str, str], deadline_s: float = 60.0,
                 cwd: str = "/") -> Command:
        words = json.loads(env["SAFELAUNCH_ASKED"])
        node, is_pair = words["node"], "peer" in words
        self.asked.append((node, is_pair))
        rate = 10.0 if is_pair else 80.0 if node == "n2" else 100.0
        value = rate + len(self.asked) % 3 / 10
        answer = {"checks": [{"name": "bus" if is_pair else "memory", "outcome": "ok", "facts": {"value": value}}],
                  "addresses": ["127.0.0.1"]}
        says = "exec sleep 600" if node == self.mute else f"echo '{json.dumps(answer)}'"
        return Command(["sh", "-c", says], {"PATH": os.environ["PATH"]}, 600.0)


def test_all_are_measured_once_the_slowest_again_and_pairs_and_the_slow_one_is_named() -> None:
    helpers = Helpers()
    bench = NodeBench(Target("", NODES, is_local=True), {}, BenchQuestion({"skip": []}), 0.015, helpers)
    assert bench.judged() == ()
    while not bench.poll():
        pass
    judged = bench.judged()
    assert [one.node for one in judged if one.speed is Speed.SLOW] == ["n2"]
    assert [one.speed for one in judged].count(Speed.GOOD) == 3
    assert sum(node == "n2" for node, is_pair in helpers.asked if not is_pair) == LOOK
    assert [is_pair for _, is_pair in helpers.asked].count(True) == 4


def test_a_node_that_never_answers_does_not_hold_whoever_stops_waiting_and_nobody_is_accused() -> None:
    bench = NodeBench(Target("", NODES, is_local=True), {}, BenchQuestion({"skip": []}), 0.015, Helpers(mute="n1"))
    assert not bench.poll()
    bench.stop()
    while not bench.poll():   # only the end of the helper ends this: its own deadline is minutes away
        pass
    assert bench.judged() == ()
