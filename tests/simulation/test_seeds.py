"""The short form of the simulation: a few seeds. Any number: python -m tests.simulation --seeds A..B."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from tests.simulation.run import run_seed

COUNT = 10_000 if os.environ.get("SAFELAUNCH_LONG") else 4   # `make test` runs 0..300 beside pytest
BATCH = 4


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_no_seed_breaks_an_invariant(first: int) -> None:
    outcomes = [run_seed(seed) for seed in range(first, first + BATCH)]
    broken = {outcome.scenario.seed: outcome.violations for outcome in outcomes if outcome.violations}
    assert not broken, f"replay: python -m tests.simulation --seed {next(iter(broken))} -v --shrink"
