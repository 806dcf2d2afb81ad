"""Labelled rows as lines: plain for pipes, folded and coloured for a terminal. Without rich, whose import alone takes
longer than `status` may.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterable

import click

from safelaunch.base.plaintext import LABEL_WIDTH
from safelaunch.base.plaintext import Row as Row
from safelaunch.verbs.common import talk

LEAST_WIDTH = 40

def lines(rows: Iterable[Row], width: int | None = None, colour: bool = False) -> list[str]:
    """The rows, folded at `width` after their labels; None = not folded. One without a text is a blank line."""
    found = []
    for label, text, style in rows:
        cleaned = talk.clean(text.expandtabs(4))
        parts = [cleaned] if width is None else fold(cleaned, max(LEAST_WIDTH, width) - LABEL_WIDTH)
        for number, part in enumerate(parts):
            head = f"{label if number == 0 else '':<{LABEL_WIDTH}}"
            found.append(f"{styled(head, 'dim') if head.strip() else head}{styled(part, style)}"
                         if colour and part else f"{head}{part}".rstrip())
    return found


def fold(text: str, width: int) -> list[str]:
    """Lines of at most `width` letters; the indentation of code is kept, and that of a list's point."""
    body = text.lstrip(" ")
    lead = text[:len(text) - len(body)]
    if len(lead) > width // 2:
        lead = ""
    more = lead + "  " if body.startswith("- ") else lead
    return textwrap.wrap(body, width, initial_indent=lead, subsequent_indent=more, break_on_hyphens=False) or [""]


def echo(rows: Iterable[Row], most_width: int | None = None) -> None:
    """Print rows: folded and coloured on a terminal, whole for a pipe."""
    is_for_person = talk.is_for_person()
    columns = min(width(), most_width or width()) if is_for_person else None
    click.echo("\n".join(lines(rows, columns, is_for_person and has_colour())))


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
