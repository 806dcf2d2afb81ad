"""The ladder's rungs, each without bad luck on top: how they end, in how many attempts and jobs, and how fast."""

from __future__ import annotations

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from tests.simulation.golden import GOLDEN
from tests.simulation.run import run

FAULT_T = 15.0
# how it ends, attempts, jobs (the one that waits, too), seconds from the fault to the next launch (issue 3, Targets)
EXPECTED = {
    "nothing goes wrong": ("completed", 1, 2, None),
    "a rank dies": ("completed", 2, 2, 7.0),
    "a worker dies, with a spare": ("completed", 2, 2, 60.0),
    "a worker dies, without a spare": ("completed", 2, 3, 60.0),
    "the batch host dies": ("completed", 2, 2, 20.0),
    "the batch host falls silent": ("completed", 2, 2, 20.0),
    "the batch host is cut off": ("completed", 2, 2, 30.0),
    "the time limit comes": ("completed", 2, 3, None),
    "a teammate touches the kill switch": ("stopped", 1, 2, None),
    "a person cancels the job": ("stopped", 1, 2, None),
    "the job is preempted": ("completed", 2, 3, 15.0),
    "the leader dies": ("completed", 1, 2, None),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_scenario_ends_as_it_should_and_in_time(name: str) -> None:
    how, attempts, jobs, within_s = EXPECTED[name]
    outcome = run(GOLDEN[name])
    assert outcome.violations == []
    assert (outcome.how, outcome.attempts, outcome.jobs) == (how, attempts, jobs)
    if within_s is not None:
        assert outcome.launched_t[1] - FAULT_T <= within_s
