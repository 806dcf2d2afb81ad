"""The table of a sweep on a screen that is too small for it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.status import sweeptable
from safelaunch.status.sweeptable import Sweep, SweepRun
from safelaunch.verbs.common.speech import SPEECH
from tests.pure.status.test_status_table import brief

STATES = ("running", "queued", "completed", "gave_up", "stopped", "waiting")


@given(st.lists(st.sampled_from(STATES), min_size=1, max_size=30), st.integers(-3, 40))
def test_a_small_screen_shows_first_what_went_wrong_or_goes_on(states: list[str], most: int) -> None:
    rows = tuple(SweepRun(number, brief(state=state), "slurm", None, None, None)
                 for number, state in enumerate(states, 1))
    seen = Sweep("many", "1", 9.0, Counter(states), rows, (), (), (), "")
    lines = [line for line, _ in sweeptable.render(seen, SPEECH, None, most)]
    left = len(rows) - max(1, most)
    assert len(lines) == 2 + len(rows) - max(0, left) + (left > 0)
    shown = [int(line.split()[0]) for line in lines[1:-1] if line.split()[0].isdigit()]
    assert shown == sorted(shown) and f": {len(rows)} run" in lines[-1]
    assert (f"and {left} more" in lines[-2]) == (left > 0)
    told = [state for state in states if state not in ("completed", "queued")]
    assert sum(states[number - 1] in told for number in shown) == min(len(told), len(shown))
