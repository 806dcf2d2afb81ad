"""MASTER_PORT of an attempt: free on its first node where this supervisor runs there, and tried by its other nodes."""

from __future__ import annotations

from typing import Any

from safelaunch.adapters.porttrial import PortTrial
from safelaunch.supervisor.leader import Leader

TRIES = 8   # of ports: each is taken with a small chance


def choose(lead: Leader, number: int, first: str, port: int | None = None) -> tuple[int, PortTrial | None]:
    """A port for an attempt, `port` if that is free. With it, where this supervisor runs on its first node, what
    listens on it; None = it runs elsewhere, or all that were tried are taken.
    """
    for _ in range(TRIES):
        if port is None:
            port = 20000 + (int(lead.job.id) * 31 + number * 1000 + int(lead.world.chance() * 1000)) % 10000
        if first != lead.job.host:
            return port, None
        try:
            return port, lead.world.listen(port)
        except OSError:
            taken, port = port, None
    return taken, None


def hold(lead: Leader, number: int, first: str) -> tuple[dict[str, Any], PortTrial | None]:
    """Words of a check's request (docs/nodes.md) by which nodes try the next attempt's port, and what listens on it."""
    port, trial = choose(lead, number, first)
    address = "127.0.0.1" if lead.job.is_local else lead.address_of(first)
    if trial is None or address is None:   # a name that only srun can resolve
        return {}, trial
    lead.nodes.try_port(number, port)
    return {"meeting": {"node": first, "address": address, "port": port}}, trial
