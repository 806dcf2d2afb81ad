"""A port that is tried by other nodes before an attempt listens on it."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from safelaunch.node.checks import network
from safelaunch.node.checks.answer import CheckRequest
from safelaunch.node.checks.network import check_port
from safelaunch.node.porttrial import PortTrial
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


def test_a_port_whose_host_says_nothing_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "REACH_S", 0.3)
    with contextlib.ExitStack() as stack:   # a full queue drops what comes, as a firewall does
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            probe = stack.enter_context(socket.socket())
            probe.setblocking(False)
            probe.connect_ex(full.getsockname())
        assert asked(full.getsockname()[1]) == ("failed", "port PORT of n0 cannot be reached: timed out")


def test_a_port_is_free_at_once_for_who_listens_next_and_a_taken_one_is_refused() -> None:
    trial = PortTrial(free_ports(1)[0])
    with socket.create_connection(("127.0.0.1", trial.port)):   # stays connected while the trial ends
        trial.take()
        with pytest.raises(OSError, match="in use"):
            PortTrial(trial.port)
        trial.close()
        PortTrial(trial.port).close()


def meets(port: int, node: str, deadline_s: int = 1) -> dict[str, Any]:
    meeting = {"node": "n0", "address": "127.0.0.1", "port": port, "listens": True}
    return check_port(CheckRequest({"node": node, "meeting": meeting, "deadline_s": deadline_s}), "")


def test_a_node_that_listens_itself_is_reached_by_those_that_have_begun_before_it() -> None:
    port = free_ports(1)[0]
    with ThreadPoolExecutor(2) as others:
        early = [others.submit(meets, port, node, deadline_s=60) for node in ("n1", "n2")]
        there = meets(port, "n0", deadline_s=2)
        assert [one.result()["outcome"] for one in early] == ["ok", "ok"]
    assert (there["outcome"], there["facts"]) == ("skipped", {"port": port, "listened": True})


def test_nobody_is_blamed_for_a_port_that_is_taken_or_that_was_not_listened_on() -> None:
    trial = PortTrial(free_ports(1)[0])
    there = meets(trial.port, "n0")
    assert (there["outcome"], there["facts"]["listened"]) == ("skipped", False) and "in use" in there["why"]
    trial.close()
    late = meets(trial.port, "n1")
    assert (late["outcome"], late["why"]) == (
        "unknown", f"port {trial.port} of n0: it was not listened on when it was tried")
