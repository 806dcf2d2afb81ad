"""Foreign text made harmless: for terminals, for JSON, and for the job's own output, which safelaunch reads again.

Anyone can choose names of files, lines of logs and answers of commands. An escape code could rewrite a reader's
terminal. A line end could make a line that looks like Slurm's. A direction mark could change the shown order. Bytes
that are not UTF-8 cannot be written at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LABEL_WIDTH = 11   # of a row for people: the longest label, "supervisor", and a blank
Row = tuple[str, str, str]   # for people: label, text, style (words of "bold", "dim" and a colour)

# C0 but for the tabulator, DEL, C1, line and paragraph ends, marks and overrides of direction (Unicode UAX 9), halves
# of characters: how Python holds bytes that are not UTF-8 (PEP 383).
_HIDDEN = ("\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
           "\ud800-\udfff")
_CONTROL = f"[{_HIDDEN}]"   # compiled where it is needed: most texts hold nothing of it
_LINE_ENDS = r"[ \t]{0,8}[\r\n]{1,64}[ \t]{0,8}"   # of Slurm's answers, which are sentences here


def clean(text: object) -> str:
    """`text` on one line, with what no terminal should be sent made visible: "\\x1b", of a byte of no text "\\xff"."""
    whole = str(text)
    if whole.isascii() and whole.isprintable():
        return whole
    return re.sub(_CONTROL, _seen, re.sub(_LINE_ENDS, "; ", whole.strip("\r\n")))


def clean_lines(text: str) -> str:
    """The same line by line, for a text of several."""
    return "\n".join(map(clean, text.split("\n")))


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines with straight columns; the last cell of a row is as long as it is."""
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    return ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]) for row in rows]


def clean_json(text: str) -> str:
    """A line of JSON with the same characters as JSON escapes, so that a reader gets the text unchanged."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_CONTROL, lambda found: f"\\u{ord(found[0]):04x}", text)


def _seen(found: re.Match[str]) -> str:
    char = found[0]
    is_byte = "\udc80" <= char <= "\udcff"
    return f"\\x{ord(char) - 0xDC00:02x}" if is_byte else repr(char)[1:-1]
