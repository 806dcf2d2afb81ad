"""Each kind of fault at each outside call of the golden scenarios; a sample, or all with SAFELAUNCH_LONG=1."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from tests.simulation.golden import GOLDEN
from tests.simulation.pairs import pairs
from tests.simulation.run import run

EVERY = 1 if os.environ.get("SAFELAUNCH_LONG") else 997   # a prime: the sample walks through the kinds


@pytest.mark.parametrize("name", GOLDEN)
def test_no_fault_at_any_outside_call_breaks_an_invariant(name: str) -> None:
    broken = {}
    for number, (what, scenario) in enumerate(pairs(name)):
        if number % EVERY == 0:
            violations = run(scenario).violations
            if violations:
                broken[what] = (violations, scenario.to_json())
    assert not broken, "replay: python -m tests.simulation --scenario FILE -v"
