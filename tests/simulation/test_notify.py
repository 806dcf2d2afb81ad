"""Messages to people beside the ladder: they delay no restart, and each thing is told once."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from tests.simulation.golden import GOLDEN
from tests.simulation.run import run
from tests.simulation.scenario import Fault

OTHERS = ("nothing goes wrong", "the time limit comes")
RESTARTS = [name for name in GOLDEN if name not in OTHERS]


@pytest.mark.parametrize("name", RESTARTS)
def test_no_launch_comes_later_because_people_are_told(name: str) -> None:
    without = run(GOLDEN[name])
    for notify in ("works", "fails", "hangs"):
        outcome = run(replace(GOLDEN[name], notify=notify))
        assert (outcome.how, outcome.violations) == (without.how, []), notify
        late_s = [with_t - t for with_t, t in zip(outcome.launched_t, without.launched_t, strict=True)]
        # The loop's turns, a tenth of a second beside a command, fall otherwise; a message takes 0.3 s, or 20 s.
        assert max(late_s) < 0.1, (notify, late_s)


@pytest.mark.parametrize(("name", "told"), [
    ("nothing goes wrong", ["completed"]),
    ("a rank dies", ["restarted", "completed"]),
    ("a teammate touches the kill switch", ["stopped"]),
])
def test_each_thing_is_told_once(name: str, told: list[str]) -> None:
    assert run(replace(GOLDEN[name], notify="works")).told == told


def test_a_takeover_is_told_and_what_was_told_before_it_is_not_told_again() -> None:
    told = run(replace(GOLDEN["the batch host falls silent"], notify="works")).told
    assert told.count("took_over") == told.count("completed") == 1
    assert len(told) == len(set(told)), told


@pytest.mark.parametrize("notify", ["works", "fails", "hangs"])
def test_a_run_that_only_a_watch_can_end_is_told_by_it_once(notify: str) -> None:
    cancelled = replace(GOLDEN["nothing goes wrong"], faults=(Fault("scancel", 1.3),), notify=notify)
    outcome = run(cancelled)
    assert (outcome.how, outcome.violations) == ("stopped", [])
    assert outcome.told == (["stopped"] if notify == "works" else [])
