"""The drawings of a report: well-formed SVG whatever the values and words are."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.report import drawing
from safelaunch.report.curves import Curve
from safelaunch.status.costs import Track
from safelaunch.status.shares import KINDS, Span

HOSTILE = "</title></svg><script>alert(1)</script>\x1b]52;c;aGk=\x07&"


def say(value: float) -> str:
    return f"{value:g}"


def test_a_hostile_word_is_text_in_every_drawing() -> None:
    track = Track(1, "1", 0, 0, ((10, 5), (20, 50)), 20, HOSTILE)
    after = Track(2, "1", 30, 20, ((40, 60),))
    drawn = [drawing.node_table([HOSTILE], [(1, {HOSTILE: "first"})]),
             drawing.staircase((track, after), [Span("down", 20, 30)], [(25, 20)], 0, 40, say),
             drawing.timeline([Span("useful", 0, 20, 1)], [(20, HOSTILE)], 0, 40, say),
             drawing.chart([Curve(1, ((1, 1.0), (2, 2.0)))], HOSTILE, say, [(1, HOSTILE)])]
    for svg in drawn:
        assert "<script" not in svg and "\x1b" not in svg
        ElementTree.fromstring(svg)


def test_steps_that_are_made_again_are_shaded_from_where_the_line_crosses_the_checkpoint() -> None:
    before, after = Track(1, "1", 0, 0, ((10, 0), (110, 100)), 110, "failed"), Track(2, "1", 120, 50, ((130, 60),), 130)
    root = ElementTree.fromstring(drawing.staircase((before, after), [], [], 0, 130, say))
    (lost,) = [one for one in root.iter() if one.get("class") == "lost"]
    x = drawing.Scale(0, 130, drawing.LEFT, drawing.WIDTH - drawing.RIGHT)
    assert (lost.get("points") or "").split(",")[0] == f"{x.at(60):g}"
    assert "50 steps of attempt 1" in "".join(lost.itertext())


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(allow_nan=True, allow_infinity=True)), max_size=40))
def test_any_figures_of_a_log_make_a_well_formed_chart_or_none(points: list[tuple[int, float]]) -> None:
    svg = drawing.chart([Curve(1, tuple(points))], "Loss", say)
    if any(abs(value) < drawing.MOST_VALUE for _, value in points):
        ElementTree.fromstring(svg)
        assert "nan" not in svg
    else:
        assert svg == ""


@given(st.floats(0, 1e7), st.floats(0, 1e7))
def test_the_axis_of_time_has_at_most_nine_round_times_within_it(since: float, length: float) -> None:
    times = drawing.round_times(since, since + length)
    assert len(times) <= 9 and times[0] == since and times[-1] <= since + length + 1e-6


def test_the_bar_is_as_wide_as_the_whole_of_its_kinds() -> None:
    root = ElementTree.fromstring(drawing.share_bar({**dict.fromkeys(KINDS, 0.0), "useful": 3, "queue": 1}, say))
    widths = {one.get("class"): float(one.get("width") or 0) for one in root.iter() if one.get("width")}
    assert widths == {"k useful": drawing.WIDTH * 0.75, "k queue": drawing.WIDTH * 0.25}
