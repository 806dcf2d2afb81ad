"""The checks of many nodes while they are under way: stopped, they give what has come so far and end their helpers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from safelaunch.adapters.nodechecks import CheckQuestion, NodeChecks
from safelaunch.adapters.noderound import Target
from safelaunch.adapters.slurm import Command
from safelaunch.node.checks.answer import LIGHT

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
