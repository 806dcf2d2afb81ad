"""Hosts with several networks: which addresses a supervisor offers, and how a guard finds the one that works."""

from __future__ import annotations

import contextlib
import selectors
import threading
import time
from pathlib import Path

import pytest

from safelaunch.guard.io.control import ControlServer
from safelaunch.guard.io.job import own_addresses
from safelaunch.guard.io.names import Names, resolve
from safelaunch.node.guard.link import Link, hosts_of

TOKEN = "a" * 64
DEADLINE_S = 20.0
CLOSED = "240.0.0.1"   # class E: the kernel sends nothing there
# /proc/net/fib_trie of a host with two networks (Linux 6.18), shortened.
FIB_TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.77.0.0/16 2 0 2
        |-- 10.77.1.1
           /32 host LOCAL
     |-- 10.78.1.1
        /32 host LOCAL
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
Local:
     |-- 10.77.1.1
        /32 host LOCAL
"""


def test_a_host_offers_the_addresses_of_all_its_networks_once_and_no_loopback(tmp_path: Path) -> None:
    table = tmp_path / "fib_trie"
    table.write_text(FIB_TRIE)
    assert own_addresses(table) == ("10.77.1.1", "10.78.1.1")


def test_a_host_whose_addresses_cannot_be_read_offers_none(tmp_path: Path) -> None:
    assert own_addresses(tmp_path / "missing") == ()


@pytest.mark.parametrize(("text", "hosts"), [
    ("", ["127.0.0.1"]), (",", ["127.0.0.1"]), ("10.0.0.5", ["10.0.0.5"]),
    ("10.0.0.5,n0,10.0.0.5", ["10.0.0.5", "n0"])])
def test_a_hosts_text_names_each_address_once(text: str, hosts: list[str]) -> None:
    assert hosts_of(text) == hosts


@pytest.mark.parametrize("hosts", [f"{CLOSED},127.0.0.1", f"no.such.host.invalid,{CLOSED},127.0.0.1", "127.0.0.1"])
def test_a_guard_that_cannot_reach_the_leaders_first_address_comes_by_another(hosts: str) -> None:
    with contextlib.closing(selectors.DefaultSelector()) as selector:
        server = ControlServer(selector, TOKEN)
        link = Link(f"{hosts}:{server.port}", None, TOKEN, {"node": "n0", "task": 0, "attempt": 1})
        until_s = time.monotonic() + 60
        while not link.greeted:
            assert time.monotonic() < until_s, f"the guard is not let in; it tries {link.address}"
            for key, _ in selector.select(0.01):
                key.data(time.monotonic())
            server.tick(time.monotonic(), 1.0)
            link.messages(time.monotonic())
        link.close()
        server.close()


def test_names_are_resolved_side_by_side() -> None:
    asked = threading.Barrier(8)

    def ask(node: str) -> tuple[str, ...]:
        if node == "unknown":
            return ()
        asked.wait(DEADLINE_S)   # eight questions at once, or none is answered
        return (f"10.0.0.{node}",)

    together = list(map(str, range(8)))
    assert resolve([*together, "unknown"], DEADLINE_S, ask) == {node: (f"10.0.0.{node}",) for node in together}


def test_a_name_server_that_is_gone_costs_no_more_than_the_limit() -> None:
    gone = threading.Event()
    try:
        assert resolve(["n0"], 0.05, lambda node: (str(gone.wait(DEADLINE_S)),)) == {}
    finally:
        gone.set()


def test_a_leader_asks_for_names_in_a_child() -> None:
    names, until_s = Names(["127.0.0.7", "no.such.name.invalid"]), time.monotonic() + DEADLINE_S
    while (found := names.poll()) is None and time.monotonic() < until_s:
        time.sleep(0.005)
    assert found == {"127.0.0.7": ("127.0.0.7",)}
