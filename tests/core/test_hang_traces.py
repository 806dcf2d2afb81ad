"""The judge of silences over whole trainings, healthy and hung, in virtual time; the long form: benchmarks.hangs."""

from __future__ import annotations

import pytest
from benchmarks.hangs import NOTICE_TARGET_S, Tally, watch_job

# Fixed, so that a failure is one of the code's: steps of 0.06 s to 280 s, silent and talking, block buffers, stalls.
SEEDS = tuple(range(700, 724))
HOURS = 8.0


@pytest.fixture(scope="module")
def tally() -> Tally:
    found = Tally()
    for seed in SEEDS:
        found.add(watch_job(seed, HOURS))
    return found


def test_no_healthy_training_is_ended(tally: Tally) -> None:
    assert tally.alarms == []


def test_a_hang_is_noticed_within_a_minute_or_a_third_more_than_the_longest_of_its_phase(tally: Tally) -> None:
    known = [one for one in tally.hangs if one.is_known]
    assert len(known) > 100 and {"step", "checkpoint", "evaluation", "data"} <= {one.phase for one in known}
    assert [one for one in known if one.noticed_s > one.bound_s] == []
    assert [one for one in known if one.is_short and one.noticed_s > NOTICE_TARGET_S] == []


def test_every_hang_is_ended_in_time(tally: Tally) -> None:
    assert max(one.ended_s for one in tally.hangs) < 5 * 3600, "also in logs that come in blocks of hours"


def test_a_training_is_the_same_for_its_seed() -> None:
    assert watch_job(SEEDS[0], 2.0) == watch_job(SEEDS[0], 2.0)
