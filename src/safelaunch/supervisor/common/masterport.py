"""MASTER_PORT of an attempt: free on its first node, and tried by its other nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from safelaunch.decide.nodes.checks import MEETING
from safelaunch.node.porttrial import PortTrial
from safelaunch.nodehealth.checks.results import CheckReport
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.ports import Here

TRIES = 8   # of ports: each is taken with a small chance


def choose(here: Here, number: int, first: str, port: int | None = None) -> tuple[int, PortTrial | None]:
    """A port for an attempt, `port` if that is free. With it, where this supervisor runs on its first node, what
    listens on it; None = it runs elsewhere, or all that were tried are taken.
    """
    for _ in range(TRIES):
        if port is None:
            port = 20000 + (int(here.job.id) * 31 + number * 1000 + int(here.world.chance() * 1000)) % 10000
        if first != here.job.host:
            return port, None
        try:
            return port, here.world.listen(port)
        except OSError:
            taken, port = port, None
    return taken, None


def hold(
    here: Here, nodes: Nodes, address_of: Callable[[str], str | None], number: int, first: str, asked: Collection[str]
) -> tuple[dict[str, Any], PortTrial | None]:
    """Words for the request of a check (docs/nodes.md) by which the nodes try the port of the coming attempt, and what
    listens on it meanwhile: this supervisor, or the first node's own check if that node is asked.
    """
    port, trial = choose(here, number, first)
    address = "127.0.0.1" if here.job.is_local else address_of(first)
    is_here = first == here.job.host
    if address is None or (trial is None and (is_here or first not in asked)):   # a name that only srun can resolve
        return {}, trial
    if is_here:
        nodes.try_port(number, port)
    return {"meeting": {"node": first, "address": address, "port": port, "listens": not is_here}}, trial


def keep(nodes: Nodes, number: int, answer: Mapping[str, Any], reports: Sequence[CheckReport]) -> None:
    """Give the attempt the port that its first node has listened on."""
    for report in reports:
        if answer and report.node == answer["meeting"]["node"] and any(
                result.name == MEETING and result.facts.get("listened") is True for result in report.results):
            nodes.try_port(number, answer["meeting"]["port"])
