"""MASTER_PORT of an attempt: free where the supervisor can tell, and the one that nodes have tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from safelaunch.nodehealth.checks.results import CheckReport, CheckResult
from safelaunch.supervisor.common import masterport
from safelaunch.supervisor.state.nodes import Nodes
from tests.tables import each


class Trial:
    """A listener."""

    def __init__(self, port: int) -> None:
        self.port = port


def leader(chances: list[float], taken: set[int]) -> Any:
    def listen(port: int) -> Trial:
        if port in taken:
            raise OSError(98, "Address already in use")
        return Trial(port)

    draw = iter(chances)
    here = SimpleNamespace(job=SimpleNamespace(id="0", host="n0", is_local=False),
                           world=SimpleNamespace(listen=listen, chance=lambda: next(draw)))
    return SimpleNamespace(here=here, nodes=Nodes())


def hold(lead: Any, first: str, *asked: str) -> Any:
    return masterport.hold(lead.here, lead.nodes, lambda node: f"{node}.site", 1, first, asked)


@each(("taken", "first", "wanted", "port", "is_held"), [
    (set(), "n0", None, 21100, True), ({21100}, "n0", None, 21200, True), ({21700}, "n0", 21700, 21100, True),
    (set(), "n0", 21700, 21700, True), ({21100}, "n1", None, 21100, False), ({21700}, "n1", 21700, 21700, False),
], ids=["free", "taken", "the tried one is taken since", "the tried one", "the first node is another", "and tried"])
def test_a_port_is_drawn_until_one_is_free_where_the_supervisor_runs_on_the_first_node(
    taken: set[int], first: str, wanted: int | None, port: int, is_held: bool
) -> None:
    found, trial = masterport.choose(leader([0.1, 0.2], taken).here, 1, first, wanted)
    assert (found, trial is not None) == (port, is_held)


def test_where_all_are_taken_the_last_one_is_used_as_sbatch_would_do() -> None:
    assert masterport.choose(leader([0.1] * masterport.TRIES, {21100}).here, 1, "n0") == (21100, None)


def test_the_port_that_nodes_have_tried_is_that_of_the_attempt_and_of_no_later_one() -> None:
    lead = leader([0.1], set())
    words, trial = hold(lead, "n0", "n1")
    assert words == {"meeting": {"node": "n0", "address": "n0.site", "port": 21100, "listens": False}}
    assert trial is not None and (lead.nodes.takes_port(1), lead.nodes.takes_port(2)) == (21100, None)


@each(("told", "port"), [
    ({"listened": True}, 21100), ({"listened": False}, None), ({"listened": "yes"}, None), ({}, None)])
def test_a_first_node_that_is_another_listens_itself_and_the_attempt_gets_that_port_if_it_could(
    told: dict[str, Any], port: int | None
) -> None:
    lead = leader([0.1], set())
    words, trial = hold(lead, "n1", "n1", "n2")
    assert words == {"meeting": {"node": "n1", "address": "n1.site", "port": 21100, "listens": True}} and trial is None
    rows = {"n2": {"listened": True}, "n1": told}
    masterport.keep(lead.nodes, 1, words, [
        CheckReport(node, "light", (CheckResult("port", "", "skipped", "", facts),)) for node, facts in rows.items()])
    assert (lead.nodes.takes_port(1), lead.nodes.takes_port(2)) == (port, None)


def test_a_first_node_that_is_another_and_is_not_asked_is_tried_by_nobody() -> None:
    lead = leader([0.1], set())
    assert hold(lead, "n1", "n2") == ({}, None)
    masterport.keep(lead.nodes, 1, {}, [CheckReport("n1", "light", ())])
    assert lead.nodes.takes_port(1) is None
