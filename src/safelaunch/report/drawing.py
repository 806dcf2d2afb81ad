"""The drawings of a report as SVG: text out of values. Colours come from classes of the page's style sheet, so that a
drawing follows light and dark. Every word from outside goes through `words`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from safelaunch.base.endings import GOOD_ENDS, AttemptEnd
from safelaunch.base.numbers import percent
from safelaunch.base.plaintext import clean
from safelaunch.base.secretmask import mask
from safelaunch.report.curves import Curve, thin
from safelaunch.status.costs import Track
from safelaunch.status.shares import KINDS, START, Span

WIDTH = 960
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 28     # around a chart, for its axes
MOST_STEPS_DRAWN = 1500                       # points of all attempts together
MOST_SPANS_DRAWN = 600
MOST_CHARACTERS = 300
MOST_VALUE = 1e100     # a greater figure is not drawn: differences of floats overflow
MOST_NODES, MOST_ATTEMPTS = 48, 60            # of the table of nodes
CELL = 18

Say = Callable[[float], str]


def words(text: object) -> str:
    """Text from outside, as it may stand in SVG: no markup, no control code, no secret."""
    return html.escape(clean(mask(str(text)[:MOST_CHARACTERS])))


@dataclass(frozen=True)
class Scale:
    """Values between `low` and `high` → places between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The place of a value, within the bounds."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + max(0.0, min(1.0, share)) * (self.end - self.start), 1)


def round_values(low: float, high: float, most: int) -> list[float]:
    """At most `most` round values from `low` to `high`, for an axis."""
    if not 1 / MOST_VALUE < high - low < 4 * MOST_VALUE:
        return [low]
    rough = (high - low) / max(1, most - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    size = next((unit * factor for factor in (1, 2, 5) if unit * factor >= rough), unit * 10)
    first = math.ceil(low / size)
    return [number * size for number in range(first, math.floor(high / size + 1e-9) + 1)]


def _svg(height: float, title: str, inside: Iterable[str]) -> str:
    return (f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{words(title)}">'
            f'<title>{words(title)}</title>{"".join(inside)}</svg>')


def _text(x: float, y: float, text: object, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="t {kind}" text-anchor="{anchor}">{words(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, kind: str, title: object = "") -> str:
    told = f"<title>{words(title)}</title>" if title else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{kind}">{told}</rect>'


def _line(points: Iterable[tuple[float, float]], kind: str) -> str:
    return f'<polyline class="{kind}" points="{" ".join(f"{x:g},{y:g}" for x, y in points)}"/>'


def _grid(x: Scale, y: Scale, say_x: Say, say_y: Say, lefts: Sequence[float], lows: Sequence[float]) -> list[str]:
    """The lines and words of both axes."""
    drawn = []
    for value in lefts:
        drawn += [_line(((x.start, y.at(value)), (x.end, y.at(value))), "grid"),
                  _text(x.start - 8, y.at(value) + 4, say_y(value), "dim", "end")]
    for value in lows:
        anchor = "end" if x.at(value) > x.end - 30 else "start" if x.at(value) < x.start + 30 else "middle"
        drawn += [_line(((x.at(value), y.start), (x.at(value), y.start + 5)), "grid"),
                  _text(x.at(value), y.start + 19, say_x(value), "dim", anchor)]
    return drawn


def share_bar(totals: Mapping[str, float], say_span: Say) -> str:
    """All seconds of a run as one bar, by kind."""
    whole = sum(totals.values())
    drawn, at = [], 0.0
    for kind in KINDS:
        width = WIDTH * totals[kind] / whole if whole > 0 else 0.0
        if width <= 0:
            continue
        told = f"{KINDS[kind][0]}: {say_span(totals[kind])}, {percent(totals[kind] / whole)}"
        drawn.append(_rect(round(at, 1), 0, round(max(0.5, width), 1), 40, f"k {kind}", told))
        at += width
    return _svg(40, "Where the time went", drawn)


def staircase(tracks: Sequence[Track], spans: Sequence[Span], checkpoints: Sequence[tuple[float, int]],
              since: float, until: float, say_span: Say) -> str:
    """Steps against wall clock: one line an attempt, what was lost to each restart shaded, checkpoints as dots."""
    top = max((track.last_step for track in tracks), default=1)
    x, y = Scale(since, until, LEFT, WIDTH - RIGHT), Scale(0, max(1, top), 300 - BOTTOM, TOP)
    drawn = [_rect(x.at(span.start_t), TOP, round(max(0.5, x.at(span.end_t) - x.at(span.start_t)), 1),
                   300 - BOTTOM - TOP, f"band {span.kind}", f"{KINDS[span.kind][0]}: {say_span(span.seconds)}")
             for span in _longest(spans) if span.attempt is None]
    drawn += _grid(x, y, lambda t: say_span(t - since), lambda step: f"{step:,.0f}", round_values(0, max(1, top), 6),
                   round_times(since, until))
    most = max(2, MOST_STEPS_DRAWN // max(1, len(tracks)))
    first_t = {span.attempt: span.end_t for span in spans if span.kind == START}
    for track, after in pairwise((*tracks, None)):
        if track is None:
            continue
        points = _steps_of(track, first_t.get(track.number, track.started_t), most)
        drawn += [_lost(track, points, after.resume_step, x, y)] if after is not None else []
        drawn.append(_line(((x.at(t), y.at(step)) for t, step in points), "steps"))
        if track.ended_t is not None and track.why not in (*GOOD_ENDS, AttemptEnd.STOPPED):
            at_x, at_y = x.at(track.ended_t), y.at(track.last_step)
            drawn.append(f'<path class="end" d="M{at_x - 5:g},{at_y - 5:g}l10,10m0,-10l-10,10">'
                         f"<title>attempt {track.number} {words(track.why)} at step {track.last_step}</title></path>")
    for t, step in thin_pairs(checkpoints, 200):
        drawn.append(f'<circle class="saved" cx="{x.at(t):g}" cy="{y.at(step):g}" r="4.5">'
                     f"<title>checkpoint of step {step}</title></circle>")
    return _svg(300, "Steps against wall clock", drawn)


def _steps_of(track: Track, first_t: float, most: int) -> list[tuple[float, int]]:
    """Its start, its steps from `first_t` on, and its end at the last of them; at most some `most` points."""
    points = [(track.started_t, track.resume_step), (first_t, track.resume_step), *thin_pairs(track.points, most)]
    return [*points, (track.ended_t, track.last_step)] if track.ended_t is not None else points


def thin_pairs(points: Sequence[tuple[float, int]], most: int) -> list[tuple[float, int]]:
    """Every nth point, and the last one."""
    size = max(1, math.ceil(len(points) / most))
    return [*points[:-1:size], *points[-1:]]


def _lost(track: Track, points: Sequence[tuple[float, int]], resume_step: int, x: Scale, y: Scale) -> str:
    """What the attempt made beyond the step that its successor went back to; `points` as they are drawn."""
    beyond = next((at for at, (_, step) in enumerate(points) if step > resume_step), None)
    if beyond is None:
        return ""
    later_t, later = points[beyond]
    t, step = points[beyond - 1] if beyond else points[beyond]
    start_t = t + (later_t - t) * max(0, resume_step - step) / (later - step) if later > step else t
    corners = [(start_t, resume_step), *points[beyond:], (points[-1][0], resume_step)]
    outline = " ".join(f"{x.at(t):g},{y.at(step):g}" for t, step in corners)
    return (f'<polygon class="lost" points="{outline}"><title>{track.last_step - resume_step} steps of attempt '
            f"{track.number} are made again</title></polygon>")


def round_times(since: float, until: float) -> list[float]:
    """Times from `since` on, a round number of seconds apart: at most nine."""
    seconds = until - since
    if not (math.isfinite(seconds) and seconds > 0):
        return [since]
    sizes = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800)
    length = next((float(size) for size in sizes if seconds / size <= 8), math.ceil(seconds / 8 / 86400) * 86400.0)
    return [since + number * length for number in range(int(seconds / length) + 1)]


def _longest(spans: Sequence[Span]) -> list[Span]:
    """The longest ones, in order: a narrower one is not to be seen."""
    kept = sorted(spans, key=lambda span: -span.seconds)[:MOST_SPANS_DRAWN]
    return sorted(kept, key=lambda span: span.start_t)


def timeline(spans: Sequence[Span], marks: Sequence[tuple[float, str]], since: float, until: float,
             say_span: Say) -> str:
    """The spans in the order of time, with a number at each mark (verdicts)."""
    x = Scale(since, until, LEFT, WIDTH - RIGHT)
    drawn = [_rect(x.at(span.start_t), 26, round(max(0.6, x.at(span.end_t) - x.at(span.start_t)), 1), 26,
                   f"k {span.kind}", f"{KINDS[span.kind][0]}: {say_span(span.seconds)}"
                   + (f", attempt {span.attempt}" if span.attempt is not None else ""))
             for span in _longest(spans)]
    for end_t, text in marks:
        at = x.at(end_t)
        drawn += [f'<g><title>{words(text)}</title>{_line(((at, 19), (at, 57)), "mark")}'
                  f'{_text(at, 14, text.partition(":")[0], "small", "middle")}</g>']
    for t in round_times(since, until):
        anchor = "start" if t == since else "end" if x.at(t) > x.end - 30 else "middle"
        drawn.append(_text(x.at(t), 70, say_span(t - since), "dim", anchor))
    return _svg(76, "Timeline", drawn)


def chart(curves: Sequence[Curve], title: str, say: Say, flags: Sequence[tuple[int, str]] = ()) -> str:
    """Values by step, an attempt a line; `flags` mark steps with a word."""
    most = max(2, 2100 // max(1, len(curves)))
    thinned = [(curve.attempt, [point for point in thin(curve.points, most) if abs(point[1]) < MOST_VALUE])
               for curve in curves[-MOST_ATTEMPTS:]]
    steps = [step for _, points in thinned for step, _ in points]
    values = [value for _, points in thinned for _, value in points]
    if not values:
        return ""
    low, high = min(0.0, *values), _upper(values)
    x, y = Scale(min(steps), max(steps), LEFT, WIDTH - RIGHT), Scale(low, high, 220 - BOTTOM, TOP)
    drawn = _grid(x, y, lambda step: f"step {step:,.0f}", say, round_values(low, high, 5),
                  round_values(min(steps), max(steps), 9))
    for step, text in flags:
        drawn.append(f'<g><title>{words(text)}</title>'
                     f'{_line(((x.at(step), TOP), (x.at(step), 220 - BOTTOM)), "flag")}</g>')
    for place, (_, points) in enumerate(thinned):
        kind = "curve" if place == len(thinned) - 1 else "curve old"
        drawn.append(_line(((x.at(step), y.at(value)) for step, value in points), kind))
    return _svg(220, title, drawn)


def _upper(values: Sequence[float]) -> float:
    """The axis' end: a few values far above the others are cut off, or nothing else could be seen."""
    ordered = sorted(values)
    usual = ordered[int(len(ordered) * 0.98)]
    high = ordered[-1] if ordered[-1] <= 3 * usual else usual * 1.5
    return high if high > 0 else 1.0


def bars(rows: Sequence[tuple[str, float, str]], kind: str, title: str) -> str:
    """(label, value, what it says) as bars of one colour, the labels to their left."""
    most = max((value for _, value, _ in rows), default=0.0)
    label = min(260, 8 * max((len(name) for name, _, _ in rows), default=0) + 16)
    x = Scale(0.0, most if most > 0 else 1.0, label, WIDTH - 200)
    drawn = []
    for row, (name, value, said) in enumerate(rows):
        y = row * 26
        drawn += [_text(label - 10, y + 17, name[:32], "", "end"),
                  _rect(label, y + 3, round(max(1.0, x.at(value) - label), 1), 20, f"k {kind}", f"{name}: {said}"),
                  _text(max(label + 1.0, x.at(value)) + 8, y + 17, said, "dim")]
    return _svg(26 * len(rows) + 4, title, drawn)


def node_table(nodes: Sequence[str], attempts: Sequence[tuple[int, Mapping[str, str]]]) -> str:
    """Nodes × attempts; each attempt maps a node to "ran", "blamed" or "first" (where it failed first)."""
    nodes, attempts = nodes[:MOST_NODES], attempts[-MOST_ATTEMPTS:]
    label = min(220, 8 * max(map(len, nodes), default=0) + 16)
    cell = min(CELL * 4.0, (WIDTH - label) / max(1, len(attempts)))
    drawn = []
    for column, (number, used) in enumerate(attempts):
        at = label + column * cell
        drawn.append(_text(at + cell / 2, 12, number, "dim", "middle"))
        for row, node in enumerate(nodes):
            kind = used.get(node, "")
            told = {"ran": "ran on", "blamed": "showed the cause on", "first": "failed first on"}.get(kind, "not on")
            drawn.append(_rect(round(at + 1, 1), 20 + row * CELL, round(cell - 2, 1), CELL - 2, f"node {kind}",
                               f"attempt {number} {told} {node}"))
            if kind in ("blamed", "first"):   # not by its colour alone
                sign = "!" if kind == "blamed" else "×"
                drawn.append(_text(at + cell / 2, 20 + row * CELL + 12, sign, "on", "middle"))
    drawn += [_text(label - 10, 20 + row * CELL + 12, node[:24], "", "end") for row, node in enumerate(nodes)]
    return _svg(24 + CELL * len(nodes), "Nodes and attempts", drawn)
