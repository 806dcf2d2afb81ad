"""The looks at an attempt's nodes after its start: which software the ranks run in, asked once and compared."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

from safelaunch.slurm.io.noderound import Target
from safelaunch.stacks.io.collect import Collected, Depth
from safelaunch.supervisor.common import inspection
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.nodes import Nodes

SOFTWARE = {"n0": "3.11.7", "n1": "3.11.7", "n2": "3.10.2"}


class Look:
    """All that was asked answer at once."""

    def __init__(self, target: Target, depth: Depth) -> None:
        lines = {node: json.dumps({"tools": {"py_spy": "/py-spy"}, "software": {"python": SOFTWARE[node]}
                                   if depth.software else None}) for node in target.nodes}
        self._collected = Collected((), (), lines)

    def poll(self) -> Collected:
        return self._collected


def leader(container: object = None) -> Any:
    asked: list[tuple[tuple[str, ...], bool]] = []

    def look(target: Target, env: Any, depth: Depth) -> Look:
        asked.append((target.nodes, depth.software))
        return Look(target, depth)

    lead = SimpleNamespace(
        asked=asked, said=[], kept={}, nodes=Nodes(), plan=SimpleNamespace(run_id="r", container=container),
        job=SimpleNamespace(id="1", is_local=False, has_gpus=False, env={}), world=SimpleNamespace(look=look),
        attempt=SimpleNamespace(nodes=tuple(SOFTWARE)), live=SimpleNamespace(number=1, killed_t=None),
        journal=SimpleNamespace(state=SimpleNamespace(attempts=())))
    lead.helpers = Helpers(cast(Any, SimpleNamespace(job=lead.job, world=lead.world, plan=lead.plan)), cast(Any, None),
                           lead.nodes)
    lead.running = SimpleNamespace(now=lead.attempt, live=lead.live)
    lead.files = SimpleNamespace(put=lambda number, name, words: lead.kept.update({(number, name): words}))
    return lead


def at_start(lead: Any, number: int) -> Any:
    return inspection.at_start(lead.helpers, lead.running, lead.journal, lead.files, lead.said.append, number)


def test_ranks_that_run_in_unlike_software_are_reported_and_each_node_is_asked_once() -> None:
    lead = leader()
    assert list(at_start(lead, 1)) == [inspection.AT_START_S, inspection.TOOL_AGAIN_S]

    assert lead.asked == [(tuple(SOFTWARE), False), (tuple(SOFTWARE), True)]
    assert lead.said == ["ranks of attempt 1 run in unlike software: n2: Python: 3.10.2, but 3.11.7 on 2 nodes"]
    assert lead.kept[1, "system/software.json"]["nodes"]["n2"] == {"python": "3.10.2"}

    lead.live.number, lead.attempt.nodes = 2, ("n0", "n1")
    assert list(at_start(lead, 2)) == [inspection.AT_START_S]
    assert len(lead.said) == 1


def test_ranks_in_a_container_are_not_asked() -> None:
    lead = leader(container=object())
    list(at_start(lead, 1))
    assert lead.asked == [(tuple(SOFTWARE), False)] * 2 and not lead.said
