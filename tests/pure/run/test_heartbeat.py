"""The pulse: what is written is what all read, the node guard included, and nothing in a file upsets a reader."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.node.guard.record import _count
from safelaunch.run.heartbeat import Heartbeat, dump, parse, to_json
from tests.tables import each

NAMES = st.text("abcn019-.", max_size=12)
PULSES = st.builds(
    Heartbeat, st.integers(0, 1 << 60), st.integers(0, 1 << 30), NAMES, NAMES, NAMES, st.none() | st.integers(),
    st.none() | st.integers(), st.none() | st.integers(1, 1 << 40).map(str), st.booleans(),
    st.none() | st.floats(0, 1e12), st.floats(0.1, 1e6), st.none() | st.tuples(NAMES, st.integers(1, 65535)),
    st.booleans(), st.none() | NAMES, st.none() | st.lists(NAMES).map(tuple), st.none() | st.floats(0, 1e12),
    st.none() | st.integers(0, 9999), *2 * (st.none() | st.floats(0, 1e12),), NAMES)


@given(PULSES)
def test_what_a_leader_writes_is_what_everybody_reads(pulse: Heartbeat) -> None:
    assert parse(json.loads(dump(pulse))) == pulse


@given(PULSES)
def test_a_node_guard_reads_the_same(pulse: Heartbeat) -> None:
    assert _count(dump(pulse)) == pulse.count
    successor = json.loads(dump(pulse))["successor"]   # as node/guard/orphan.py does
    assert pulse.successor is None or str(int(successor)) == pulse.successor


@each(("key", "value"), [
    ("v", 2), ("count", None), ("count", "x"), ("gen", 1e400), ("endpoint", ["n0"]), ("endpoint", 7),
    ("watchers", 7), ("successor", "12; reboot"), ("every_s", []),
], ids=str)
def test_a_pulse_of_another_form_is_none(key: str, value: object) -> None:
    assert parse({**to_json(Heartbeat(1, 2, "n0", "12")), key: value}) is None


def test_what_an_older_leader_does_not_say_is_unknown() -> None:
    assert parse({"v": 1, "count": 1, "gen": 2, "host": "n0", "job": "12"}) == Heartbeat(1, 2, "n0", "12")
