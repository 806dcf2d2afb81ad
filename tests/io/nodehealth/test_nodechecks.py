"""The checks of many nodes while they are under way: stopped, they give what has come so far and end their helpers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence

from safelaunch.node.checks.answer import LIGHT
from safelaunch.nodehealth.checks.judge import judge
from safelaunch.nodehealth.io.nodechecks import CheckQuestion, NodeChecks
from safelaunch.slurm.io.noderound import Target
from safelaunch.slurm.io.slurm import Command

NODES = ("n0", "n1", "n2")


def test_checks_that_are_stopped_keep_the_answers_list_the_others_and_end_their_helpers() -> None:
    begun: list[Command] = []

    def begin(argv: Sequence[str], env: Mapping[str, str], deadline_s: float = 60.0, cwd: str = "/") -> Command:
        says = """echo '{"checks": [{"name": "shm", "outcome": "ok"}]}'""" if not begun else "exec sleep 600"
        begun.append(Command(["sh", "-c", says], {"PATH": os.environ["PATH"]}, 600.0))
        return begun[-1]

    asked = NodeChecks(Target("", NODES, is_local=True), {}, CheckQuestion(dict.fromkeys(NODES, LIGHT)), begin)
    while not asked.checked().reports:
        asked.poll()
    assert not asked.poll()

    asked.stop()

    found = asked.checked()
    assert [one.node for one in found.reports] == ["n0"]
    assert [(one.node, one.why) for one in found.silent] == [
        ("n1", "did not answer in time"), ("n2", "did not answer in time")]
    while not asked.poll():   # only an end of the helpers ends this: their own deadline is 10 minutes away
        pass
    assert [one.node for one in asked.checked().reports] == ["n0"]


def test_a_node_whose_clock_is_a_minute_late_is_named_with_it() -> None:
    def begin(argv: Sequence[str], env: Mapping[str, str], deadline_s: float = 60.0, cwd: str = "/") -> Command:
        node = json.loads(env["SAFELAUNCH_ASKED"])["node"]
        now = "$(date -d '1 minute ago' +%s.%N)" if node == "n2" else "$(date +%s.%N)"
        says = f"""echo '{{"checks": [{{"name": "clock", "outcome": "ok"}}], "took_s": 0, "t": '{now}'}}'"""
        return Command(["sh", "-c", says], {"PATH": os.environ["PATH"]}, 600.0)

    nodes = (*NODES, "n3")
    checked = NodeChecks(Target("", nodes, is_local=True), {}, CheckQuestion(dict.fromkeys(nodes, LIGHT)), begin).wait()

    states = {one.node: (one.state.value, one.reasons) for one in judge(checked.reports).nodes}
    assert [states[node][0] for node in nodes] == ["good", "good", "slow or odd", "good"]
    assert re.fullmatch(r"clock: at least (59|60)\.\d s behind 3 nodes", states["n2"][1][0])
