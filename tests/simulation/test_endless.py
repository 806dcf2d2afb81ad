"""Jobs that bring nothing: a run of which nothing is ever seen is held, and told; a person lets it go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from safelaunch.decide.budget import endless
from tests.simulation.golden import GOLDEN
from tests.simulation.run import run


def test_a_run_of_which_nothing_is_ever_seen_is_held_after_two_time_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "has_steps", lambda state: False)   # lines that are not read
    outcome = run(replace(GOLDEN["nothing goes wrong"], steps=100_000, save_every=100_000, limit_min=2,
                          handles_signal=False, watchers=0, notify="works"))
    # The person of the simulation answers once: then two more jobs end so, and the fifth waits, held.
    assert (outcome.jobs, outcome.attempts, outcome.ended_t) == (5, 4, None)
    assert outcome.told.count("held") == 2
