"""The table of docs/conformance.md, from a file of results: how many scripts run as under sbatch, and which differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.conformance.case import FAULT
from tests.conformance.differences import ALLOWED

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
TABLE, LIST = ("<!-- table -->", "<!-- end of table -->"), ("<!-- list -->", "<!-- end of list -->")


def write_page(rows: Iterable[Mapping[str, Any]]) -> None:
    """Put the results, and the list of allowed differences, into the page."""
    text = between(PAGE.read_text(), TABLE, shapes(rows))
    PAGE.write_text(between(text, LIST, allowed()))


def between(text: str, marks: tuple[str, str], new: str) -> str:
    """The text with what stands between the two marks put anew."""
    before, _, rest = text.partition(marks[0])
    return f"{before}{marks[0]}\n{new}\n{marks[1]}{rest.partition(marks[1])[2]}"


def shapes(rows: Iterable[Mapping[str, Any]]) -> str:
    """How many there are, and a line for each script that differs from sbatch, its groups in order."""
    verdicts: dict[str, dict[str, str]] = {}
    shown: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["group"] == "generated":
            continue
        name = row["name"].removesuffix(f"-{FAULT}")
        shown.setdefault(name, row)
        verdicts.setdefault(name, {})[_column(row)] = row["verdict"]
    lines = ["| shape that differs | as sbatch | said by `check` |", "|---|---|---|"]
    equal = right = 0
    for name in sorted(shown, key=lambda one: (shown[one]["group"], one)):
        row, found = shown[name], verdicts[name]
        same = {"equal": "yes", "said": "no", "refused": "refused", "unsaid": "**no**"}.get(found.get("same", ""), "–")
        end = {"right": "yes", "wrong": "**no**"}.get(found.get("end", ""), "–")
        said = {"said": "yes", "refused": "yes", "unsaid": "**no**"}.get(found.get("same", ""), "–")
        equal, right = equal + (same == "yes"), right + (end == "yes")
        if same not in ("yes", "–") or end == "**no**":
            wrong = same if end != "**no**" else "**ends wrong after a fault**"
            lines.append(f"| {row['shape'].replace('|', chr(92) + '|')} | {wrong} | {said} |")
    return "\n".join([counted(len(shown), equal, right), "", *lines])


def counted(scripts: int, equal: int, right: int) -> str:
    """The line above the table."""
    return f"{scripts} scripts: {equal} come to the same as under sbatch, {right} restart rightly after a fault."


def _column(row: Mapping[str, Any]) -> str:
    return "end" if row["verdict"] in ("right", "wrong") else "same"


def allowed() -> str:
    """The list of `differences.py`."""
    rows = [f"| {one.kind} | `{one.name.replace('|', chr(92) + '|')}` | {one.why} |" for one in ALLOWED]
    return "\n".join(["| what | names | why |", "|---|---|---|", *rows])
