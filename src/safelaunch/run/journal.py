"""Journal lines as text: one file per writer, one JSON object a line, merged on read.

A writer may be cut off at any byte. A torn last line is the mark of that and is ignored. A torn line in the middle
means that something else wrote to the file, and is reported. Unknown events are kept: the fold skips them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from safelaunch.base.model import Event

VERSION = 1
MAX_LINE_BYTES = 1 << 20   # a longer "line" is not ours: a journal line holds a node list at most
MAX_T_S = 1e11             # the year 5138; JSON can say NaN and numbers that no float holds
MAX_INT = 1 << 63          # of a step, an attempt, an exit code: no float holds 400 digits
# Most lines of a long run, and ten times as fast as JSON.
_COUNT = rb"(0|[1-9][0-9]{0,15})"
_STEP_LINE = (rb'\{"v":1,"t":((?:0|[1-9][0-9]{0,10})\.[0-9]{1,6}),"gen":%b,"seq":%b,"host":"([\w.-]+)",'
              rb'"event":"progress","attempt":%b,"step":%b\}' % (_COUNT, _COUNT, _COUNT, _COUNT))
_step_line = cache(lambda: re.compile(_STEP_LINE))   # once, and not where nobody reads a journal
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once   # type: ignore[attr-defined]
# What is no line of ours can stand there a million times. A file is read in full all the same: `render` writes no
# blanks, and begins each line so.
_lines = cache(lambda: re.compile(rb"[^ \t\r\n][^\n]*"))
_OURS, _LINE_END = rb'{"v":1,', 10
_likely_lines = cache(lambda: re.compile(re.escape(_OURS) + rb"[^\n]*"))
MOST_ODD = 200             # lines of a file that are none of ours; then only those are read that begin as ours do
# For people also: events of a kind. A run of a year has hundreds of jobs and attempts, and many of these:
MOST_OF_KIND, MANY = 1000, ("progress", "step_time", "checkpoint", "decision")
MOST_ODD_SHOWN = 20_000    # where a person waits for the lines: then the rest of the file is left out
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


def merge(files: Mapping[str, bytes], most_parts: int | None = None) -> Journal:
    """One journal out of the writers' files (name → bytes); the same line twice (a redelivery) counts once.
    `most_parts`: values in all lines that are read, for people; what is left out is told.

    The line itself is what tells a redelivery: two commands of one login node both write as generation 0, and count
    from 1. A later generation belongs to one claim, so that two lines of one number are reported there.
    """
    seen: dict[bytes, Event] = {}
    problems: list[str] = []
    left = most_parts
    for name in sorted(files, key=lambda name: (len(files[name]) if most_parts else 0, name)):   # a huge one comes last
        for line, event in _parse_file(name, files[name], problems, is_bounded=left is not None):
            if left is not None and (left := left - _parts(line)) < 0:
                problems.append(f"{name}: only its begin was read: it has more than {most_parts} values")
                break
            seen.setdefault(line, event)
    # The same whatever the files' names.
    merged = sorted(seen.items(), key=lambda item: (item[1].gen, item[1].seq, item[1].t, item[1].host, item[0]))
    events = [event for _, event in merged]
    problems += islice(_double_numbers(events), MOST_ODD)
    return Journal(tuple(events if most_parts is None else _newest_of_each(events, problems)), tuple(problems))


def _newest_of_each(events: Sequence[Event], problems: list[str]) -> Iterable[Event]:
    """The last MOST_OF_KIND of each kind: the state holds a list of most, which each of them goes through."""
    counts = Counter(event.event for event in events)
    too_many = {kind: count - MOST_OF_KIND for kind, count in counts.items() if count > MOST_OF_KIND} if (
        len(events) > MOST_OF_KIND) else {}
    for kind in MANY:
        too_many.pop(kind, None)
    problems += (f"only the last {MOST_OF_KIND} of {counts[kind]} events {kind!r} were read" for kind in too_many)
    for event in events:
        if too_many.get(event.event, 0) > 0:
            too_many[event.event] -= 1
        else:
            yield event


def _double_numbers(events: Iterable[Event]) -> Iterable[str]:
    numbers: set[tuple[int, int]] = set()
    for event in events:
        if event.gen and (event.gen, event.seq) in numbers:
            yield f"generation {event.gen} has two lines {event.seq}; one is {event.event!r} from {event.host}"
        numbers.add((event.gen, event.seq))


def _parse_file(name: str, data: bytes, problems: list[str], is_bounded: bool) -> Iterable[tuple[bytes, Event]]:
    odd, at, number, found = 0, 0, 1, None
    while found := (_lines() if odd < MOST_ODD else _likely_lines()).search(data, found.end() if found else 0):
        start = found.start()
        line = data[start:min(found.end(), start + MAX_LINE_BYTES + 1)]   # a longer one is none of ours
        event = _parse_line(line) if odd < MOST_ODD or not start or data[start - 1] == _LINE_END else None
        if event is not None:
            yield line.strip(), event
        elif found.end() < len(data):   # at the end: torn
            odd += 1
            if odd < MOST_ODD:
                number, at = number + data.count(b"\n", at, start), start
                problems.append(f"{name}:{number}: {_tell_odd(line)}")
            elif odd == MOST_ODD:
                problems.append(f"{name}: {MOST_ODD} such lines; more of them are not listed")
            elif is_bounded and odd > MOST_ODD_SHOWN:
                problems.append(f"{name}: the rest was not read")
                return


def _parts(line: bytes) -> int:
    """How many values JSON makes of a line, at most: three bytes can be one, which takes 64 in memory."""
    return sum(line.count(mark) for mark in (b",", b"[", b"{"))


def _tell_odd(line: bytes) -> str:
    is_lost = not line.strip(b" \t\r\0")
    return "zero bytes (a lost write of the filesystem)" if is_lost else "not a journal line"


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
    if type(raw) is not dict or raw.pop("v", None) != VERSION:   # types of JSON have no others below them
        return None
    pop = raw.pop
    t, gen, seq, host, event = pop("t", None), pop("gen", None), pop("seq", None), pop("host", None), pop("event", None)
    if (type(t) is not float and type(t) is not int) or type(host) is not str or type(event) is not str:
        return None
    if type(gen) is not int or type(seq) is not int or gen < 0 or seq < 0 or not abs(t) < MAX_T_S:   # nor NaN
        return None
    for value in raw.values():   # `any` takes twice as long, and there are as many as a journal has lines
        if type(value) is int and abs(value) > MAX_INT:
            return None
    return _make(float(t), gen, seq, host, event, raw)


def _make(t: float, gen: int, seq: int, host: str, event: str, data: dict[str, object]) -> Event:
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
