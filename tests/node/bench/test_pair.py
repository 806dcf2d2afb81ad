"""All-reduce between two real processes on this machine, by gloo; and with a partner that is stopped or never comes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safelaunch.node import addresses
from tests.handmade import fake_command
from tests.ports import free_ports

PROGRAM = "import sys; from safelaunch.node.bench import pair; pair.main(sys.stdin.read())"
STUB = """echo '{"torch": "1", "backend": "gloo", "samples": [2.0, 3.0, 4.0]}'"""


def start(is_first: bool, ports: list[int], python: str, **words: Any) -> subprocess.Popen[str]:
    request = {"node": "ab"[not is_first], "peer": "ab"[is_first], "is_first": is_first, "token": "t", "ports": ports,
               "addresses": addresses.own_addresses(), "python": python, "deadline_s": 300, "repeats": 2, **words}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(request))
    process.stdin.close()
    process.stdin = None
    return process


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=600)
    (row,) = json.loads(out)["checks"]
    found: dict[str, Any] = row
    return found


@pytest.mark.torch
def test_two_processes_measure_an_all_reduce_by_gloo() -> None:
    ports = free_ports(3)
    both = [start(is_first, ports, sys.executable) for is_first in (True, False)]
    for row in map(answer, both):
        assert (row["name"], row["outcome"]) == ("bus", "ok"), row
        assert row["facts"]["value"] > 0 and row["facts"]["device"] == "all-reduce by gloo"


def test_a_partner_whose_process_is_stopped_costs_the_deadline_and_is_a_failure(tmp_path: Path) -> None:
    fake_command(tmp_path, "good", "exec sleep 600")   # as a rank waits for its partner
    fake_command(tmp_path, "stopped", "kill -STOP $$")
    ports = free_ports(3)
    both = [start(is_first, ports, str(tmp_path / name), deadline_s=8)
            for is_first, name in ((True, "good"), (False, "stopped"))]
    for row, peer in zip(map(answer, both), "ba", strict=True):
        assert (row["outcome"], row["why"]) == ("failed", f"all-reduce with {peer} gave no answer in time")


@pytest.mark.parametrize(("is_first", "why"), [(True, "b did not connect"), (False, "a did not answer")])
def test_a_partner_that_never_comes_is_a_failure(is_first: bool, why: str) -> None:
    row = answer(start(is_first, free_ports(3), "/nonexistent", deadline_s=1))
    assert (row["outcome"], row["why"]) == ("failed", why)


def test_a_taken_port_and_a_stranger_without_the_token_stop_no_pair(tmp_path: Path) -> None:
    fake_command(tmp_path, "python", STUB)
    ports = free_ports(3)
    with socket.create_server(("", ports[0])):   # its greeting is never answered
        first = start(True, ports, str(tmp_path / "python"))
        stranger = None
        while stranger is None:
            try:
                stranger = socket.create_connection((addresses.own_addresses()[0], ports[1]))
            except ConnectionRefusedError:
                assert first.poll() is None
        with stranger:
            stranger.sendall(b"let me in")
            assert stranger.recv(16) == b""
        rows = [answer(start(False, ports, str(tmp_path / "python"))), answer(first)]
    assert [(row["outcome"], row["facts"]["value"]) for row in rows] == [("ok", 3.0), ("ok", 3.0)]


def test_without_pytorch_nothing_is_measured_and_nothing_failed(tmp_path: Path) -> None:
    fake_command(tmp_path, "python", """echo '{"torch": null}'""")
    ports = free_ports(3)
    both = [start(is_first, ports, str(tmp_path / "python")) for is_first in (True, False)]
    assert {answer(one)["outcome"] for one in both} == {"skipped"}
