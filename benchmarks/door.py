"""python -m benchmarks.door: what a line between a guard and its leader costs, sealed and as bare JSON, in turns.

Both ends are the real ones, in one process, without a socket. A ping goes out and comes in, a pong goes back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from benchmarks.figure import Figure, ratio_of_pairs, render_table
from safelaunch.node.guard.protocol import Session, from_leader

LINES, ROUNDS = 20_000, 15
PING, PONG = b'{"do":"ping"}', b'{"ev": "pong"}'
TARGET = "≤ 5 µs more"


def measure() -> list[Figure]:
    """Microseconds a line, each side."""
    ways: dict[str, Callable[[], tuple[float, float]]] = {"bare": _bare, "sealed": _sealed}
    found: dict[str, list[float]] = {f"{name}, {side}": [] for name in ways for side in ("leader", "guard")}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            for side, value in zip(("leader", "guard"), way(), strict=True):
                found[f"{name}, {side}"].append(value)
    figures = [Figure(name, "µs", tuple(values)) for name, values in found.items()]
    for side in ("leader", "guard"):
        pairs = found[f"sealed, {side}"], found[f"bare, {side}"]
        more = tuple(ours - theirs for ours, theirs in zip(*pairs, strict=True))
        figures.append(Figure(f"more by the proof, {side}", "µs", more, TARGET, "bare JSON", ratio_of_pairs(*pairs)))
    return figures


def _bare() -> tuple[float, float]:
    """As lines were before they had a proof: a ping was one text for all guards, a pong was compared."""
    start_s = time.process_time()
    for _ in range(LINES):
        line = PING + b"\n"
        _ = line == PONG
    leader_s = time.process_time() - start_s
    for _ in range(LINES):
        json.loads(PING)
        json.dumps({"ev": "pong"}).encode()
    return _us(leader_s), _us(time.process_time() - start_s - leader_s)


def _sealed() -> tuple[float, float]:
    leader, guard = (Session(b"t" * 64, "0" * 64, is_leader) for is_leader in (True, False))
    start_s = time.process_time()
    pings = [leader.seal(PING) for _ in range(LINES)]
    leader_s = time.process_time() - start_s
    pongs = []
    start_s = time.process_time()
    for line in pings:
        text = guard.unseal(line[:-1])
        assert text is not None and from_leader(text) is not None
        pongs.append(guard.seal(json.dumps({"ev": "pong"}).encode()))
    guard_s = time.process_time() - start_s
    start_s = time.process_time()
    for line in pongs:
        assert leader.unseal(line[:-1]) == PONG
    return _us(leader_s + time.process_time() - start_s), _us(guard_s)


def _us(span_s: float) -> float:
    """Of one of two lines: one out, one in."""
    return span_s / LINES / 2 * 1e6


if __name__ == "__main__":
    print(render_table("door: a line between a guard and its leader", measure()))
