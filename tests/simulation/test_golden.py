"""The ladder's rungs, each without bad luck on top: how they end, in how many attempts and jobs, and how fast."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from tests.simulation.golden import GOLDEN
from tests.simulation.run import run
from tests.simulation.scenario import Fault

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
    "a node on which the program fails at its start, with a spare": ("completed", 2, 2, None),
    "a node on which the program fails later, with a spare": ("completed", 2, 2, None),
    "a teammate wants it to stop at its next checkpoint": ("stopped", 1, 2, None),
}


@pytest.mark.parametrize("word", ["checkpoint", "kill"])
@pytest.mark.parametrize("leader_dies_t", [None, 6.0, 8.0, 15.0])
def test_training_that_cannot_hear_is_ended_with_its_next_checkpoint(word: str, leader_dies_t: float | None) -> None:
    """Its steps take a second each, and every twentieth is saved; the grace is 30 s."""
    deaf = GOLDEN["a teammate wants it to stop at its next checkpoint"]
    died = () if leader_dies_t is None else (Fault("leader_dies", leader_dies_t),)
    outcome = run(replace(deaf, faults=(Fault(word, 5.0), *died)))
    assert (outcome.how, outcome.violations, outcome.attempts) == ("stopped", [], 1)
    assert outcome.saved == [20]
    assert outcome.ended_t is not None and outcome.ended_t < 32.0   # step 20 is there at 22 s, the grace ends at 38 s


def test_a_training_that_saves_at_every_step_is_ended_all_the_same() -> None:
    """Each look finds a newer checkpoint than the one before it."""
    deaf = GOLDEN["a teammate wants it to stop at its next checkpoint"]
    outcome = run(replace(deaf, save_every=1, faults=(Fault("kill", 5.0),)))
    assert (outcome.how, outcome.violations) == ("stopped", [])
    assert outcome.ended_t is not None and outcome.ended_t < 20.0


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_scenario_ends_as_it_should_and_in_time(name: str) -> None:
    how, attempts, jobs, within_s = EXPECTED[name]
    outcome = run(GOLDEN[name])
    assert outcome.violations == []
    assert (outcome.how, outcome.attempts, outcome.jobs) == (how, attempts, jobs)
    if within_s is not None:
        assert outcome.launched_t[1] - FAULT_T <= within_s
