"""The phases of a supervisor, and their drawing."""

from __future__ import annotations

import re
from pathlib import Path

from safelaunch.decide.facts.phase import NEXT, Phase, may_follow, phase_of
from safelaunch.decide.facts.seen import Live
from tests.tables import each

DRAWING = Path(__file__).parents[3] / "docs" / "drawings" / "phases.dot"
LIVE = Live(1, ("n0",))


@each(
    ("live", "facts", "phase"),
    [
        (None, "", Phase.IDLE),
        (LIVE, "", Phase.LIVE),
        (Live(1, ("n0",), end_row="kill"), "", Phase.ENDING),
        (Live(1, ("n0",), killed_t=1.0), "", Phase.ENDING),
        (Live(1, ("n0",), fenced=True), "", Phase.ENDING),
        (None, "preserving", Phase.PRESERVING),
        (LIVE, "preserving", Phase.LIVE),
        (None, "handing_over", Phase.HANDING_OVER),
        (None, "handing_over preserving", Phase.HANDING_OVER),
        (None, "finishing", Phase.FINISHING),
        (None, "handing_over finishing preserving", Phase.FINISHING),
    ],
    ids=lambda value: None if isinstance(value, Live) else getattr(value, "value", value),
)
def test_phase_follows_from_the_live_attempt_and_from_what_is_under_way(
    live: Live | None, facts: str, phase: Phase
) -> None:
    found = {f"is_{name}": name in facts.split() for name in ("handing_over", "finishing", "preserving")}
    assert phase_of(live, **found) is phase


def test_each_phase_may_last_and_be_superseded() -> None:
    assert all(may_follow(phase, phase) and may_follow(phase, Phase.SUPERSEDED) for phase in Phase)
    assert not may_follow(Phase.LIVE, Phase.IDLE), "an attempt is fenced and judged before the next decision"
    assert not may_follow(Phase.LIVE, Phase.HANDING_OVER)


def test_every_phase_can_be_reached() -> None:
    assert set(NEXT) == set(Phase)
    assert {after for row in NEXT.values() for after in row} | {Phase.BORN, Phase.SUPERSEDED} == set(Phase)


def test_drawing_of_the_phases_is_the_table() -> None:
    drawn = re.findall(r"^  (\w+) -> (\w+)", DRAWING.read_text(), re.MULTILINE)
    assert sorted(drawn) == sorted((before.name, after.name) for before, row in NEXT.items() for after in row)
