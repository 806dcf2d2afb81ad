"""The table of a sweep on a screen that is too small for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.status import sweeptable
from safelaunch.verbs.common.speech import SPEECH

STATES = ("running", "queued", "completed", "gave_up", "stopped", "waiting")
ROW = {"values": {}, "now_t": 9.0, "since_t": 1.0, "step": None, "step_total": None, "loss": None, "category": None,
       "restarts": 0, "max_restarts": 3, "ended_why": None}


@given(st.lists(st.sampled_from(STATES), min_size=1, max_size=30), st.integers(-3, 40))
def test_a_small_screen_shows_first_what_went_wrong_or_goes_on(states: list[str], most: int) -> None:
    rows = [{**ROW, "point": number, "state": state} for number, state in enumerate(states, 1)]
    seen = {"sweep": "many", "sweep_id": "1", "counts": sweeptable.counts(rows), "points": rows}
    lines = [line for line, _ in sweeptable.render(seen, SPEECH, None, most)]
    left = len(rows) - max(1, most)
    assert len(lines) == 2 + len(rows) - max(0, left) + (left > 0)
    shown = [int(line.split()[0]) for line in lines[1:-1] if line.split()[0].isdigit()]
    assert shown == sorted(shown) and f": {len(rows)} run" in lines[-1]
    assert (f"and {left} more" in lines[-2]) == (left > 0)
    told = [state for state in states if state not in ("completed", "queued")]
    assert sum(states[number - 1] in told for number in shown) == min(len(told), len(shown))
