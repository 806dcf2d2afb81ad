"""Journal lines as text: one file per writer, one JSON object a line, merged on read.

A writer may be cut off at any byte. A torn last line is the mark of that and is ignored. A torn line in the middle
means that something else wrote to the file, and is reported. Unknown events are kept: the fold skips them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from safelaunch.core.model import Event
from safelaunch.core.records import NamedTuple

VERSION = 1
MAX_LINE_BYTES = 1 << 20   # a longer "line" is not ours: a journal line holds a node list at most
MAX_T_S = 1e11             # the year 5138; JSON can say NaN and numbers that no float holds
# Most lines of a long run, and ten times as fast as JSON.
_COUNT = rb"(0|[1-9][0-9]{0,15})"
_STEP_LINE = (rb'\{"v":1,"t":((?:0|[1-9][0-9]{0,10})\.[0-9]{1,6}),"gen":%b,"seq":%b,"host":"([\w.-]+)",'
              rb'"event":"progress","attempt":%b,"step":%b\}' % (_COUNT, _COUNT, _COUNT, _COUNT))
_step_line = cache(lambda: re.compile(_STEP_LINE))   # once, and not where nobody reads a journal
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once   # type: ignore[attr-defined]
_RESERVED = frozenset({"v", "t", "gen", "seq", "host", "event"})


class Journal(NamedTuple):
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
    """One journal out of the writers' files (name → bytes); the same line twice (a redelivery) counts once.

    The line itself is what tells a redelivery: two commands of one login node both write as generation 0, and count
    from 1. A later generation belongs to one claim, so that two lines of one number are reported there.
    """
    seen: dict[bytes, Event] = {}
    problems: list[str] = []
    for name in sorted(files):
        for line, event in _parse_file(name, files[name], problems):
            seen.setdefault(line, event)
    # The same whatever the files' names.
    merged = sorted(seen.items(), key=lambda item: (item[1].gen, item[1].seq, item[1].t, item[1].host, item[0]))
    problems += _double_numbers([event for _, event in merged])
    return Journal(tuple(event for _, event in merged), tuple(problems))


def _double_numbers(events: Iterable[Event]) -> Iterable[str]:
    numbers: set[tuple[int, int]] = set()
    for event in events:
        if event.gen and (event.gen, event.seq) in numbers:
            yield f"generation {event.gen} has two lines {event.seq}; one is {event.event!r} from {event.host}"
        numbers.add((event.gen, event.seq))


def _parse_file(name: str, data: bytes, problems: list[str]) -> Iterable[tuple[bytes, Event]]:
    lines = data.split(b"\n")
    last = len(lines) - 1   # behind the last newline: empty, or torn
    for index, line in enumerate(lines):
        if not line:   # millions of them are no reason to wait
            continue
        event = _parse_line(line)
        if event is not None:
            yield line.strip(), event
        elif index != last and line.strip(b" \t\r"):
            is_lost = not line.strip(b" \t\r\0")
            problems.append(f"{name}:{index + 1}: "
                            + ("zero bytes (a lost write of the filesystem)" if is_lost else "not a journal line"))


def _parse_line(line: bytes) -> Event | None:
    """The event of a line; None when it is torn, garbled or of a later version."""
    if len(line) > MAX_LINE_BYTES:
        return None
    if step := _step_line().fullmatch(line):
        t, gen, seq, host, attempt, number = step.groups()
        return _make(float(t), int(gen), int(seq), host.decode(), "progress",
                     {"attempt": int(attempt), "step": int(number)})
    try:
        raw = _read_json(line.decode())   # of bytes, json would guess the encoding first
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        return None
    pop = raw.pop
    t, gen, seq, host, event = pop("t", None), pop("gen", None), pop("seq", None), pop("host", None), pop("event", None)
    if not isinstance(t, (int, float)) or isinstance(t, bool) or not _is_count(gen) or not _is_count(seq):
        return None
    if not abs(t) < MAX_T_S:   # NaN is not, either
        return None
    if not isinstance(host, str) or not isinstance(event, str):
        return None
    raw.pop("v")
    return _make(float(t), gen, seq, host, event, raw)


def _make(t: float, gen: int, seq: int, host: str, event: str, data: dict[str, Any]) -> Event:
    """The event, at a third of the time that a frozen dataclass takes: there are as many as a journal has lines."""
    made = object.__new__(Event)
    made.__dict__.update(t=t, gen=gen, seq=seq, host=host, event=event, data=data)
    return made


def _read_json(text: str) -> Any:
    """As json.loads, which takes twice as long over a short line."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:   # it begins with a space, or is no JSON
        return json.loads(text)
    return value if end == len(text) else json.loads(text)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
