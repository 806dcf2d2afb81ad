"""The runs of a sweep: their values, their table, and their failures by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from safelaunch.base.jsonform import to_json
from safelaunch.base.numbers import figure
from safelaunch.status.overview import VERSION, Brief, style_of, word_of
from safelaunch.status.speech import Speech
from safelaunch.status.table import Line, cut, join, more, most_telling, restarts_of

SHOWN_NAMES = 6   # of the points with one cause, and of those whose folders are gone


class SweepRun(NamedTuple):
    """A run of a sweep, with the cause of its newest attempt that did not end well."""

    point: int | None
    run: Brief
    cluster: str
    category: str | None
    summary: str | None
    ended_why: str | None

    def to_json(self) -> dict[str, Any]:
        """Its object in `status SWEEP --json`."""
        found = to_json(self)
        return {"point": found.pop("point"), **found.pop("run"), **found}


class SweepCause(NamedTuple):
    """Attempts that failed alike: the names and numbers of their runs, and which of these have ended badly."""

    category: str
    summary: str
    runs: tuple[str, ...]
    points: tuple[int | None, ...]
    failed: tuple[str, ...]


class Sweep(NamedTuple):
    """All runs of a sweep; `silent`: folders that do not answer; `gone`: names of runs without one."""

    sweep: str | None
    sweep_id: str | None
    now_t: float
    counts: Mapping[str, int]
    points: tuple[SweepRun, ...]
    causes: tuple[SweepCause, ...]
    silent: tuple[str, ...]
    gone: tuple[str, ...]
    trouble: str

    def to_json(self) -> dict[str, Any]:
        """The object of `status SWEEP --json`."""
        return {"v": VERSION, **to_json(self), "points": [one.to_json() for one in self.points]}


def some(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    left = len(names) - SHOWN_NAMES
    return f"{', '.join(names[:SHOWN_NAMES])}{f' and {left} more' if left > 0 else ''}"


def causes(points: Sequence[SweepRun]) -> tuple[SweepCause, ...]:
    """The causes of attempts that failed, the most frequent first: what the supervisors saw, at which points, and
    which of these have ended badly.
    """
    found: dict[tuple[str, str], list[SweepRun]] = {}
    for one in points:
        if one.category is not None:
            found.setdefault((one.category, one.summary or ""), []).append(one)
        elif one.run.state == "gave_up":
            found.setdefault(("none", one.ended_why or ""), []).append(one)
    return tuple(
        SweepCause(category, summary, tuple(one.run.name for one in some), tuple(one.point for one in some),
                   tuple(one.run.name for one in some if one.run.state == "gave_up"))
        for (category, summary), some in sorted(found.items(), key=lambda item: -len(item[1])))


def render(sweep: Sweep, speech: Speech, width: int | None, most: int | None = None) -> list[Line]:
    """The table: a line for each point, of more than `most` those that tell most, and a last one for all."""
    points = most_telling(sweep.points, [one.run for one in sweep.points], most)
    varied = list(dict.fromkeys(name for one in points for name in one.run.values))
    head = ("POINT", *varied, "STATE", "FOR", "STEP", "LOSS", "RETRY", "CAUSE")
    cells = [_cells(one, varied, speech) for one in points]
    kept = [column for column in range(len(head) - 1) if any(row[column] for row in cells)]
    widths = [max(len(head[column]), *(len(row[column]) for row in cells)) for column in kept]
    lines = [(cut(f"{join([head[column] for column in kept], widths)}{head[-1]}", width), "dim")] if points else []
    for row, one in zip(cells, points, strict=True):
        text = f"{join([row[column] for column in kept], widths)}{row[-1]}".rstrip()
        lines.append((cut(text, width), style_of(one.run)))
    told = ", ".join(f"{number} {state.replace('_', ' ')}" for state, number in sweep.counts.items())
    if left := len(sweep.points) - len(points):
        lines.append((cut(more(left), width), "dim"))
    all_of = "1 run" if len(sweep.points) == 1 else f"{len(sweep.points)} runs"
    return [*lines, (cut(f"{sweep.sweep} ({sweep.sweep_id}): {all_of}{told and f': {told}'}", width), "")]


def render_causes(sweep: Sweep) -> list[str]:
    """The causes as lines, with what to type next."""
    told = []
    for one in sweep.causes:
        ends = f"{len(one.failed)} ended by it" if one.failed else "none ended by it"
        what = one.summary if one.category == "none" else f"{one.category}: {one.summary}"
        told += [f"{len(one.runs)} of {len(sweep.points)} runs, {ends}: {what}", f"  {some(one.runs)}",
                 f"  see: safelaunch why {one.runs[0]}"]
    if not told and (unknown := len(sweep.silent) + len(sweep.gone)):
        return [f"no attempt of the {len(sweep.points)} runs that can be read has failed; of the other {unknown} "
                "nothing is known"]
    return told or ["no attempt of these runs has failed"]


def _cells(one: SweepRun, varied: Sequence[str], speech: Speech) -> tuple[str, ...]:
    run, loss = one.run, one.run.loss
    since = speech.span(run.now_t - run.since_t) if run.since_t is not None else ""
    of = f"/{run.step_total}" if run.step is not None and run.step_total else ""
    cause = f"{one.category}: {one.summary or ''}" if one.category is not None else (
        one.ended_why or "" if run.state in ("gave_up", "stopped") else "")
    return (str(one.point or ""), *(run.values.get(name, "") for name in varied), word_of(run),
            since, "" if run.step is None else f"{run.step}{of}",
            figure(loss, 4) if isinstance(loss, float) else str(loss or ""),
            restarts_of(run), cause)
