"""Hosts with several networks: which addresses a supervisor offers, and how a guard finds the one that works."""

from __future__ import annotations

import contextlib
import selectors
import time
from pathlib import Path

import pytest

from safelaunch.adapters.control import ControlServer
from safelaunch.adapters.job import own_addresses
from safelaunch.node.guard.link import Link, hosts_of

TOKEN = "a" * 64
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
