"""What the leader says of a silence that it does not end yet."""

from __future__ import annotations

import math

from safelaunch.supervisor.hang.hangs import tell_next
from tests.tables import each


@each(("next_s", "counts_s", "end_s", "said"), [
    (235.0, 300.0, math.inf, "counted as a hang at 300 if nothing changes, next check at 235"),
    (235.0, None, math.inf, "next check at 235"),
    (235.0, 900.0, 400.0, "the job's time limit comes before it counts as a hang, at 400; next check at 235"),
    (950.0, 897.0, 400.0, "the job's time limit comes before the next check, at 400"),
    (450.0, None, 400.0, "the job's time limit comes before the next check, at 400"),
], ids=["it may pass", "a rank works", "a check comes before the job's end", "none does", "of ranks at work as well"])
def test_when_it_counts_and_when_the_next_check_is_are_said_but_no_time_behind_the_jobs_end(
    next_s: float, counts_s: float | None, end_s: float, said: str
) -> None:
    assert tell_next(lambda at_s: f"{at_s:.0f}", next_s, counts_s, end_s) == said
