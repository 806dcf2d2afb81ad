"""How the verbs speak: data to stdout, talk to stderr; times with their zone, spans in words, no control codes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from safelaunch.base.io.localtime import clock as clock
from safelaunch.base.io.localtime import moment as moment
from safelaunch.base.plaintext import clean as clean
from safelaunch.base.plaintext import clean_json, clean_lines

Say = Callable[[str], None]   # takes a line of talk: `say` for a terminal, `hush` for a program

_UNITS = (("d", 86400), ("h", 3600), ("min", 60))


def moment_now(t: float) -> str:
    """The same of what is read at once: without the date where that is today's."""
    return moment(t, time.time())


def say(text: str) -> None:
    """A message: a line on stderr, after all data so far."""
    import click  # a verb has it already, and a program that asks for no talk needs none

    sys.stdout.flush()
    click.echo(clean_lines(text), err=True)


def hush(text: str) -> None:
    """Drop a message."""


def emit_json(value: dict[str, Any]) -> None:
    """Data: one JSON object on a line."""
    import click

    click.echo(clean_json(json.dumps(value, ensure_ascii=False)))


def span(seconds: float) -> str:
    """45 s, 12 min, 3 h 5 min, 2 d 4 h: two units at most."""
    left = int(min(max(0.0, seconds), 1e12))
    words = []
    for unit, size in _UNITS:
        if left >= size:
            words.append(f"{left // size} {unit}")
        left %= size
    return " ".join(words[:2]) if words else f"{left} s"


def stamp(t: float) -> str:
    """The time before a line (epoch s): as people read it on a terminal, in full for a file that is read next week."""
    return moment(t) if is_for_person() else clock(t)


def is_for_person() -> bool:
    """Whether stdout is a terminal, not a file or a program."""
    return sys.stdout.isatty()
