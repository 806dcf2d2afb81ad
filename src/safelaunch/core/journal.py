"""Journal lines as text: one file per writer, one JSON object a line, merged on read.

A writer may be cut off at any byte. A torn last line is the mark of that and is ignored; a torn line in the middle
means that something else wrote to the file, and is reported. Unknown events are kept: the fold skips them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from safelaunch.core.model import Event

VERSION = 1
MAX_LINE_BYTES = 1 << 20   # a longer "line" is not ours: a journal line holds a node list at most
_RESERVED = frozenset({"v", "t", "gen", "seq", "host", "event"})


@dataclass(frozen=True)
class Journal:
    """Merged events in order, and what could not be read (`file:line: why`)."""

    events: tuple[Event, ...]
    problems: tuple[str, ...] = ()


def render(event: Event) -> bytes:
    """The event's line, newline included."""
    head = {"v": VERSION, "t": round(event.t, 3), "gen": event.gen, "seq": event.seq, "host": event.host,
            "event": event.event}
    clash = _RESERVED & event.data.keys()
    if clash:
        raise ValueError(f"journal data may not use {sorted(clash)}")
    return (json.dumps({**head, **event.data}, separators=(",", ":"), ensure_ascii=True) + "\n").encode()


def merge(files: Mapping[str, bytes]) -> Journal:
    """One journal out of the writers' files (name → bytes); the same line twice (a redelivery) counts once."""
    seen: dict[tuple[int, int, str, str], Event] = {}
    problems: list[str] = []
    for name in sorted(files):
        for event in _parse_file(name, files[name], problems):
            seen.setdefault((event.gen, event.seq, event.host, event.event), event)
    return Journal(tuple(sorted(seen.values(), key=lambda event: event.order)), tuple(problems))


def _parse_file(name: str, data: bytes, problems: list[str]) -> Iterable[Event]:
    lines = data.split(b"\n")
    last = len(lines) - 1   # behind the last newline: empty, or torn
    for index, line in enumerate(lines):
        if not line.strip(b" \t\r\0"):
            if b"\0" in line and index != last:
                problems.append(f"{name}:{index + 1}: zero bytes (a lost write of the filesystem)")
            continue
        event = _parse_line(line)
        if event is not None:
            yield event
        elif index != last:
            problems.append(f"{name}:{index + 1}: not a journal line")


def _parse_line(line: bytes) -> Event | None:
    """The event of a line; None when it is torn, garbled or of a later version."""
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        raw: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        return None
    t, gen, seq, host, event = (raw.pop(key, None) for key in ("t", "gen", "seq", "host", "event"))
    if not isinstance(t, (int, float)) or isinstance(t, bool) or not _is_count(gen) or not _is_count(seq):
        return None
    if not isinstance(host, str) or not isinstance(event, str):
        return None
    raw.pop("v")
    return Event(float(t), gen, seq, host, event, raw)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
