"""The judge of silences over whole trainings, healthy and hung, in virtual time; the long form: benchmarks.hangs."""

from __future__ import annotations

import os

from benchmarks.hangs import NOTICE_TARGET_S, Tally, watch_job

# Fixed, so that a failure is one of the code's: steps of 0.06 s to 280 s, silent and talking, block buffers, stalls.
SEEDS = tuple(range(700, 724 if os.environ.get("SAFELAUNCH_LONG") == "1" else 704))
HOURS = 8.0


def test_no_healthy_training_is_ended_and_every_hang_is_noticed_and_ended_in_time() -> None:
    """One test: workers share nothing."""
    tally = Tally()
    for seed in SEEDS:
        tally.add(watch_job(seed, HOURS))
    assert tally.alarms == []

    known = [one for one in tally.hangs if one.is_known]
    assert len(known) > 4 * len(SEEDS) and {"step", "checkpoint", "evaluation", "data"} <= {one.phase for one in known}
    assert [one for one in known if one.noticed_s > one.bound_s] == [], "a minute, or a third more than the longest"
    assert [one for one in known if one.is_short and one.noticed_s > NOTICE_TARGET_S] == []
    assert max(one.ended_s for one in tally.hangs) < 5 * 3600, "also in logs that come in blocks of hours"


def test_a_training_is_the_same_for_its_seed() -> None:
    assert watch_job(SEEDS[0], 2.0) == watch_job(SEEDS[0], 2.0)
