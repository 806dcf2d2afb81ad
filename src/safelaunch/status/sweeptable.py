"""The runs of a sweep as a table, and their failures by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from safelaunch.base.numbers import figure
from safelaunch.status.rows import style_of, word_of
from safelaunch.status.speech import Speech
from safelaunch.status.table import Line, cut, join, more, most_telling, restarts_of

SHOWN_NAMES = 6   # of the points with one cause, and of those whose folders are gone


def some(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    left = len(names) - SHOWN_NAMES
    return f"{', '.join(names[:SHOWN_NAMES])}{f' and {left} more' if left > 0 else ''}"


def counts(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many runs are in which state."""
    return dict(Counter(row["state"] for row in rows))


def causes(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The causes of attempts that failed, the most frequent first: what the supervisors saw, at which points, and
    which of these have ended badly.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["category"] is not None:
            found.setdefault((row["category"], row["summary"] or ""), []).append(row)
        elif row["state"] == "gave_up":
            found.setdefault(("none", row["ended_why"] or ""), []).append(row)
    return [{"category": category, "summary": summary, "runs": [row["name"] for row in some],
             "points": [row["point"] for row in some],
             "failed": [row["name"] for row in some if row["state"] == "gave_up"]}
            for (category, summary), some in sorted(found.items(), key=lambda item: -len(item[1]))]


def render(sweep: dict[str, Any], speech: Speech, width: int | None, most: int | None = None) -> list[Line]:
    """The table: a line for each point, of more than `most` those that tell most, and a last one for all."""
    rows = most_telling(sweep["points"], most)
    varied = list(dict.fromkeys(name for row in rows for name in row["values"]))
    head = ("POINT", *varied, "STATE", "FOR", "STEP", "LOSS", "RETRY", "CAUSE")
    cells = [_cells(row, varied, speech) for row in rows]
    kept = [column for column in range(len(head) - 1) if any(row[column] for row in cells)]
    widths = [max(len(head[column]), *(len(row[column]) for row in cells)) for column in kept]
    lines = [(cut(f"{join([head[column] for column in kept], widths)}{head[-1]}", width), "dim")] if rows else []
    for row, one in zip(cells, rows, strict=True):
        text = f"{join([row[column] for column in kept], widths)}{row[-1]}".rstrip()
        lines.append((cut(text, width), style_of(one)))
    told = ", ".join(f"{number} {state.replace('_', ' ')}" for state, number in sweep["counts"].items())
    if left := len(sweep["points"]) - len(rows):
        lines.append((cut(more(left), width), "dim"))
    all_of = "1 run" if len(sweep["points"]) == 1 else f"{len(sweep['points'])} runs"
    return [*lines, (cut(f"{sweep['sweep']} ({sweep['sweep_id']}): {all_of}{told and f': {told}'}", width), "")]


def render_causes(sweep: dict[str, Any]) -> list[str]:
    """The causes as lines, with what to type next."""
    told = []
    for one in sweep["causes"]:
        ends = f"{len(one['failed'])} ended by it" if one["failed"] else "none ended by it"
        what = one["summary"] if one["category"] == "none" else f"{one['category']}: {one['summary']}"
        told += [f"{len(one['runs'])} of {len(sweep['points'])} runs, {ends}: {what}", f"  {some(one['runs'])}",
                 f"  see: safelaunch why {one['runs'][0]}"]
    if not told and (unknown := len(sweep["silent"]) + len(sweep["gone"])):
        return [f"no attempt of the {len(sweep['points'])} runs that can be read has failed; of the other {unknown} "
                "nothing is known"]
    return told or ["no attempt of these runs has failed"]


def _cells(row: dict[str, Any], varied: Sequence[str], speech: Speech) -> tuple[str, ...]:
    since = speech.span(row["now_t"] - row["since_t"]) if row["since_t"] is not None else ""
    of = f"/{row['step_total']}" if row["step"] is not None and row["step_total"] else ""
    loss = row["loss"]
    cause = f"{row['category']}: {row['summary'] or ''}" if row["category"] is not None else (
        row["ended_why"] or "" if row["state"] in ("gave_up", "stopped") else "")
    return (str(row["point"] or ""), *(row["values"].get(name, "") for name in varied), word_of(row),
            since, "" if row["step"] is None else f"{row['step']}{of}",
            figure(loss, 4) if isinstance(loss, float) else str(loss or ""),
            restarts_of(row), cause)
