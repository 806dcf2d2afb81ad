"""A port that is tried by other nodes before an attempt listens on it."""

from __future__ import annotations

import socket

import pytest

from safelaunch.adapters.porttrial import PortTrial
from safelaunch.node.checks.answer import CheckRequest
from safelaunch.node.checks.network import check_port
from tests.ports import free_ports


def asked(port: int, node: str = "n1", address: str = "127.0.0.1") -> tuple[str, str]:
    request = CheckRequest({"node": node, "meeting": {"node": "n0", "address": address, "port": port}})
    told = check_port(request, "")
    return told["outcome"], told["why"].replace(str(port), "PORT")


def test_nodes_reach_a_port_that_is_held_and_say_why_they_cannot() -> None:
    trial = PortTrial(free_ports(1)[0])
    assert [asked(trial.port) for _ in range(3)] == [("ok", "port PORT of n0 can be reached")] * 3
    assert asked(trial.port, node="n0") == ("skipped", "the other nodes try port PORT of this one")
    trial.take()
    trial.close()
    assert asked(trial.port) == ("failed", "port PORT of n0 cannot be reached: Connection refused")
    outcome, why = asked(trial.port, address="no such name")
    assert outcome in ("failed", "unknown") and why.startswith("port PORT of n0"), why


def test_a_port_is_free_at_once_for_who_listens_next_and_a_taken_one_is_refused() -> None:
    trial = PortTrial(free_ports(1)[0])
    with socket.create_connection(("127.0.0.1", trial.port)):   # stays connected while the trial ends
        trial.take()
        with pytest.raises(OSError, match="in use"):
            PortTrial(trial.port)
        trial.close()
        PortTrial(trial.port).close()
