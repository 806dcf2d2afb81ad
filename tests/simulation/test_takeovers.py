"""No leader that is alive is taken for dead, however it pauses and the folder stalls; a dead one is."""

from __future__ import annotations

import os

import pytest

from safelaunch.decide.jobs import takeover
from tests.simulation.takeovers import Episode, count_false, is_false

EPISODES = 1_000_000 if os.environ.get("SAFELAUNCH_LONG") else 1_500


def test_no_false_takeover_in_pauses_of_5_s_and_stalls_of_30_s() -> None:
    assert sum(count_false(seed, 500) for seed in range(EPISODES // 500)) == 0


def test_leader_that_is_dead_for_good_is_seen() -> None:
    assert is_false(Episode(leader=((10.0, 60.0),)), 3.0)


def test_figure_would_show_a_standby_that_has_too_little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "TAKEOVER_S", 3.0)
    monkeypatch.setattr(takeover, "MIN_READS", 1)
    assert count_false(0, 500) > 0
