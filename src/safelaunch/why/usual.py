"""What good logs of the same command say: their distinct lines, without what differs from one run to the next."""

from __future__ import annotations

import re

from safelaunch.why.loglines import plain

MOST_LINES = 20_000    # distinct ones of a log: some MB
LEAST_LETTERS = 8      # of a template: less is the end of many lines
_TERMINAL = re.compile(rb"\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]")
_WORD = rb"[\w./:@+=%,-]"
# A word with a digit or a slash: numbers, paths, hosts, times, addresses.
_VARIES = re.compile(rb"(?<!" + _WORD + rb")[A-Za-z_.:@+=%,-]{0,200}[\d/]" + _WORD + rb"*")


def read_good(data: bytes) -> str:
    """The distinct lines of a good log, as templates."""
    lines = set(_VARIES.sub(b"#", _TERMINAL.sub(b"", data)).splitlines())
    return "\n".join([*sorted(text for line in list(lines)[:MOST_LINES] if (text := _text(line))), ""])


def holds(good: str, text: str) -> bool:
    """Whether such a line stands in a good log, behind whatever labels."""
    template = _text(_VARIES.sub(b"#", plain(text.encode())))
    return len(template) >= LEAST_LETTERS and f"{template}\n" in good


def _text(template: bytes) -> str:
    return " ".join(plain(template).decode("utf-8", "replace").split())
