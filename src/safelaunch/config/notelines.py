"""What is said of a config, as people read it: a page at most, and one line for what stands in several lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST = 8
_PLACED = re.compile(r"(?P<file>.+?):(?P<line>\d+): (?P<text>.*)\Z", re.DOTALL)


def note_lines(notes: Sequence[str], file: str) -> list[str]:
    """The lines to print; where they are too many, the last stays: what every script must know."""
    places: dict[tuple[str, str], list[str]] = {}
    for note in notes:
        placed = _PLACED.match(note)
        name, text = (placed["file"], placed["text"]) if placed else ("", note)
        lines = places.setdefault((name, text), [])
        if placed and placed["line"] not in lines:
            lines.append(placed["line"])
    said = [f"{name}:{lines[0]}: {text}{_also(lines[1:])}" if lines else text for (name, text), lines in places.items()]
    if len(said) <= MOST:
        return said
    return [*said[:MOST - 1], f"and {len(said) - MOST} more: safelaunch check {file} --json", said[-1]]


def _also(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    shown = ", ".join(lines[:3])
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return f" (also in line{'s' if len(lines) > 1 else ''} {shown}{more})"
