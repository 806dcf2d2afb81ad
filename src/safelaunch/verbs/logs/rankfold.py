"""Lines that several ranks print alike at about the same moment, shown once: "[n[0-3]: 32 ranks] …"."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from safelaunch.slurm import nodefold
from safelaunch.why import logstamps

PREFIX = re.compile(rb"(\[([^\[\]\s:]{1,255}):(\d{1,9})\]:) ?")   # what our launchers put before a line: "[host:rank]:"
LINES_A_RANK = 64           # ranks print tracebacks of 30 lines and more one behind the other
MOST_BYTES = 8 << 20        # of lines that wait for their equals
LONGEST_BYTES = 16 << 10    # a longer line is shown as it is
MOST_APART_S = 5.0          # by the time stamps in the lines, where both have one


@dataclass
class _OpenLine:
    """A line, and who printed it."""

    line: bytes
    text: bytes             # behind the prefix
    key: bytes | None       # the text without its time stamp; None = it is not folded
    place: int              # of all groups of that text
    since_line: int
    since_s: float
    stamp_t: float | None
    who: list[tuple[bytes, bytes]] = field(default_factory=list)

    def shown(self) -> bytes:
        """The line, with all its hosts and the number of its ranks if they are several."""
        if len(self.who) < 2:
            return self.line
        hosts = nodefold.fold(host.decode(errors="surrogateescape") for host, _ in self.who)
        return b"[%s: %d ranks] %s" % (hosts.encode(errors="surrogateescape"), len(self.who), self.text)


@dataclass
class _Alike:
    """The open groups of one text. The nth line that a rank prints of it belongs to the nth group."""

    groups: dict[int, _OpenLine] = field(default_factory=dict)
    places: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    next_place: int = 0


class RankFold:
    """One log's lines. A line waits until LINES_A_RANK lines for each rank have followed, or for `hold_s`."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self._open: deque[_OpenLine] = deque()
        self._alike: dict[bytes, _Alike] = {}
        self._ranks: set[tuple[bytes, bytes]] = set()
        self._lines = self._bytes = 0

    def add(self, line: bytes, now_s: float) -> list[bytes]:
        """The lines that are shown now that this one has come."""
        self._lines += 1
        found = PREFIX.match(line) if len(line) <= LONGEST_BYTES else None
        if found is None:
            self._append(_OpenLine(line, line, None, 0, self._lines, now_s, None))
        else:
            self._join(line, found.end(), (found[2], found[3]), now_s)
        return self.due(now_s)

    def due(self, now_s: float) -> list[bytes]:
        """The lines that have waited long enough."""
        found = []
        most_lines = LINES_A_RANK * len(self._ranks)
        while self._open and (self._lines - self._open[0].since_line >= most_lines or self._bytes > MOST_BYTES
                              or now_s - self._open[0].since_s >= self._hold_s):
            found.append(self._take())
        return found

    def rest(self) -> list[bytes]:
        """All lines that still wait."""
        return [self._take() for _ in range(len(self._open))]

    def _join(self, line: bytes, start: int, who: tuple[bytes, bytes], now_s: float) -> None:
        self._ranks.add(who)
        stamp = logstamps.match(line, start)
        key, stamp_t = line[stamp.end if stamp else start:].rstrip(b"\r\n"), stamp.t if stamp else None
        alike = self._alike.setdefault(key, _Alike())
        place = max(alike.places.get(who, 0), next(iter(alike.groups), alike.next_place))
        group = alike.groups.get(place)
        if group is None or _are_apart(group.stamp_t, stamp_t):
            place = alike.next_place
            alike.next_place += 1
            group = alike.groups[place] = _OpenLine(line, line[start:], key, place, self._lines, now_s, stamp_t)
            self._append(group)
        alike.places[who] = place + 1
        group.who.append(who)

    def _append(self, group: _OpenLine) -> None:
        self._open.append(group)
        self._bytes += len(group.line)

    def _take(self) -> bytes:
        group = self._open.popleft()
        self._bytes -= len(group.line)
        if group.key is not None:
            alike = self._alike[group.key]
            del alike.groups[group.place]
            if not alike.groups:
                del self._alike[group.key]
        return group.shown()


def _are_apart(one_t: float | None, other_t: float | None) -> bool:
    return one_t is not None and other_t is not None and abs(one_t - other_t) > MOST_APART_S
