"""A job step that cannot start: told within minutes, ended without blame, given up the second time."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from tests.simulation.golden import GOLDEN
from tests.simulation.run import run
from tests.simulation.scenario import Fault
from tests.simulation.sim import Outcome

_PLAIN = replace(GOLDEN["nothing goes wrong"], watchers=0, faults=(Fault("busy", 0.0, 100_000.0),))


def _first_t(outcome: Outcome, words: str) -> float:
    return next(float(line.split()[0]) for line in outcome.timeline if words in line)


def test_step_that_never_starts_is_told_within_minutes_and_ends_the_run_the_second_time() -> None:
    outcome = run(replace(_PLAIN, limit_min=120), is_verbose=True)
    assert (outcome.how, outcome.attempts, outcome.jobs) == ("gave_up", 2, 2)
    assert _first_t(outcome, "the step cannot start: Requested nodes are busy") < 240.0
    assert _first_t(outcome, '"event":"gave_up"') < 900.0
    written = "\n".join(outcome.timeline)
    assert set(re.findall(r'"category":"(\w+)"', written)) == {"config"}
    assert '"event":"node_suspected"' not in written and '"event":"node_excluded"' not in written


def test_step_that_starts_meanwhile_trains_on() -> None:
    outcome = run(replace(_PLAIN, limit_min=120, faults=(Fault("busy", 0.0, 230.0),)), is_verbose=True)
    assert outcome.violations == []
    assert (outcome.how, outcome.attempts) == ("completed", 1)
    assert _first_t(outcome, "the step cannot start") < 230.0
