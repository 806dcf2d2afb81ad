"""Labelled rows as lines: plain for pipes, folded and coloured for a terminal. Without rich, whose import alone takes
longer than `status` may.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterable

import click

from safelaunch.views import talk

LABEL_WIDTH = 11   # of the longest label, "supervisor", and a blank
LEAST_WIDTH = 40

Row = tuple[str, str, str]   # label, text, style: words of "bold", "dim" and a colour


def lines(rows: Iterable[Row], width: int | None = None, colour: bool = False) -> list[str]:
    """The rows, folded at `width` after their labels; None = not folded."""
    found = []
    for label, text, style in rows:
        room = max(LEAST_WIDTH, width or 0) - LABEL_WIDTH
        parts = [talk.clean(text)] if width is None else textwrap.wrap(
            talk.clean(text), room, break_on_hyphens=False) or [""]
        for number, part in enumerate(parts):
            head = f"{label if number == 0 else '':<{LABEL_WIDTH}}"
            found.append(f"{styled(head, 'dim') if head.strip() else head}{styled(part, style)}" if colour else (
                f"{head}{part}".rstrip()))
    return found


def width() -> int:
    """Columns of this terminal."""
    return shutil.get_terminal_size().columns


def has_colour() -> bool:
    """Whether colours are wanted: no-color.org says that NO_COLOR counts when it is not empty."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, style: str) -> str:
    """`styled`, if stdout is a terminal and colours are wanted."""
    return styled(text, style) if talk.is_for_person() and has_colour() else text


def styled(text: str, style: str) -> str:
    """With the terminal's codes for the style."""
    words = style.split()
    colours = [word for word in words if word not in ("bold", "dim")]
    if not words:
        return text
    return click.style(text, fg=colours[0] if colours else None, bold="bold" in words or None,
                       dim="dim" in words or None)
