"""Blocks of a log's bytes → findings.

A literal prefilter names the lines that can matter; only those are taken apart and shown to the rules. Inside a
traceback every line is looked at, because the exception's own line need hold no literal at all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from safelaunch.core import loglines
from safelaunch.core.findings import Finding, Progress, Rule
from safelaunch.core.loglines import Parsed

TRACEBACK = b"Traceback (most recent call last)"
MAX_LINE = 8192            # bytes of a line shown to the rules, around what the prefilter hit
MAX_BLOCK_LINES = 60       # of a traceback, kept; the frames in the middle of a deeper one go
MAX_PATIENCE = 400         # lines of others while a traceback is open; then it is given up as torn
KEEP_ALL = 300             # findings of one rule; beyond, only the first of each rank or host, and the last
LOOK_BACK = 4096           # bytes before a line in which its stamp is looked for when it has none
_EXCEPTION = re.compile(rb"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*|:)?$", re.DOTALL)
_SURE = re.compile(rb"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Warning|Iteration|Failure)\w*"
                   rb"|[a-z_]\w*\.(?:error|timeout|gaierror|herror|Empty|Full|Aborted))(?:: |:?$)")
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")


@dataclass(frozen=True)
class Compiled:
    """Rules made ready to search: `literals[i]` is the anchor of the rules at `users[i]`, indices by precedence."""

    rules: tuple[Rule, ...]
    patterns: tuple[re.Pattern[bytes], ...]
    literals: tuple[bytes, ...]
    users: tuple[tuple[int, ...], ...]


def compile_rules(rules: Iterable[Rule]) -> Compiled:
    """The rules ready to search, in the order in which they win a line: by order, weight, place in the table."""
    ranked = tuple(sorted(rules, key=lambda rule: (-rule.order, -rule.weight)))
    users: dict[bytes, list[int]] = {TRACEBACK: []}
    for index, rule in enumerate(ranked):
        for literal in rule.anchor:
            users.setdefault(literal, []).append(index)
    for literal in _CHAINED:
        users.setdefault(literal, [])
    return Compiled(ranked, tuple(re.compile(rule.pattern) for rule in ranked), tuple(users),
                    tuple(tuple(indices) for indices in users.values()))


@dataclass
class _Open:
    """A traceback that has begun on one stream."""

    offset: int
    lines: list[bytes]
    chain: int
    age: int = 0
    is_fresh: bool = True     # the line before, of the same stream, belonged to it


@dataclass
class _Stream:
    """What is remembered of who prints: chained tracebacks are told by the lines between them."""

    chain: int = -1
    is_chained: bool = False
    last: int | None = None   # index of the last finding of a traceback


@dataclass
class Part:
    """What one file, or a piece of it, gave."""

    findings: list[Finding] = field(default_factory=list)
    progress: dict[tuple[str | None, int | None], tuple[Progress, Progress, Progress]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class Scanner:
    """Reads one file's blocks in order and gathers what the rules find in them."""

    def __init__(self, compiled: Compiled, file: int, *, hosts: frozenset[bytes] = frozenset(), year: int | None = None,
                 host: str | None = None) -> None:
        self.compiled = compiled
        self.file = file
        self.part = Part()
        self._hosts = hosts
        self._host = host
        self._year = year
        self._open: dict[bytes, _Open] = {}
        self._streams: dict[bytes, _Stream] = {}
        self._kept: dict[str, dict[tuple[str | None, int | None], int]] = {}
        self._line = 1

    def feed(self, block: bytes, offset: int, *, count_lines: bool = True) -> None:
        """Look at a block that starts at a line's start; `offset` is its place in the file."""
        hits = find_literals(self.compiled.literals, block)
        at = 0            # lines before this one are done
        counted = 0       # newlines before `counted` are in self._line
        index = 0
        size = len(block)
        while at < size:
            if self._open:
                start = at
            else:
                while index < len(hits) and hits[index][0] < at:
                    index += 1
                if index == len(hits):
                    break
                start = _start_of(block, hits[index][0], at)
            end = _end_of(block, start)
            first = index
            while first < len(hits) and hits[first][0] < start:
                first += 1
            last = first
            while last < len(hits) and hits[last][0] < end:
                last += 1
            if count_lines:
                self._line += block.count(b"\n", counted, start)
                counted = start
            self._look(block, start, end, hits[first:last], offset, self._line if count_lines else None)
            index = last
            at = end + 1
        if count_lines:
            self._line += block.count(b"\n", counted)

    def _look(self, block: bytes, start: int, end: int, hits: Sequence[tuple[int, int]], offset: int,
              number: int | None) -> None:
        """One line: what belongs to an open traceback goes there, else the rules whose literals it holds are tried."""
        low = start if not hits or end - start <= MAX_LINE else max(start, hits[0][0] - MAX_LINE // 2)
        line = loglines.parse(block[low:min(end, low + MAX_LINE)], self._hosts, self._year)
        literals = {hit for _, hit in hits}
        if 0 in literals:
            self._begin(line, offset + start)
            return
        opened = self._open.get(line.stream)
        if opened is not None:
            if self._continue(opened, line, block, start, offset, number):
                return
        elif self._open:
            self._grow_old()
        if not literals:
            return
        if any(word in line.payload for word in _CHAINED):
            self._streams.setdefault(line.stream, _Stream()).is_chained = True
        candidates = sorted({user for literal in literals for user in self.compiled.users[literal]})
        self._try(candidates, line, block, start, offset, number)

    def _begin(self, line: Parsed, at: int) -> None:
        stream = self._streams.setdefault(line.stream, _Stream())
        if b"Original Traceback" in line.payload and stream.last is not None:
            # DataLoader and DataParallel print the outer exception first and the one from the worker below it.
            outer = self.part.findings[stream.last]
            self.part.findings[stream.last] = outer._replace(chain=stream.chain + 1)
        else:
            stream.chain = stream.chain + 1 if stream.is_chained else 0
        stream.is_chained = False
        self._open[line.stream] = _Open(at, [line.payload], stream.chain)

    def _continue(self, opened: _Open, line: Parsed, block: bytes, start: int, offset: int, number: int | None) -> bool:
        """Whether the line belongs to the traceback; its exception's line ends it."""
        payload = line.payload
        if payload[:1] in (b" ", b"\t") or payload[:1] in (b"+", b"|"):
            if len(opened.lines) >= MAX_BLOCK_LINES:
                del opened.lines[MAX_BLOCK_LINES // 2]
            opened.lines.append(payload)
            opened.is_fresh = True
            return True
        if not payload.strip():
            return True
        if _SURE.match(payload) or (opened.is_fresh and len(opened.lines) > 1 and _EXCEPTION.match(payload)):
            del self._open[line.stream]
            rules = range(len(self.compiled.rules))
            block_lines = tuple(loglines.text(text, 400) for text in [*opened.lines, payload])
            stream = self._streams[line.stream]
            count = len(self.part.findings)
            self._try(rules, line, block, start, offset, number, block_lines, opened.chain)
            stream.last = count if len(self.part.findings) > count else None
            return True
        opened.is_fresh = False
        self._grow_old()
        return False

    def _grow_old(self) -> None:
        for stream, opened in list(self._open.items()):
            opened.age += 1
            if opened.age > MAX_PATIENCE:
                del self._open[stream]

    def _try(self, candidates: Iterable[int], line: Parsed, block: bytes, start: int, offset: int, number: int | None,
             traceback: tuple[str, ...] = (), chain: int = 0) -> None:
        for index in candidates:
            pattern = self.compiled.patterns[index]
            match = pattern.search(line.payload) or (
                pattern.search(line.body) if len(line.body) != len(line.payload) else None)
            if match is not None:
                self._keep(self.compiled.rules[index], match, line, block, start, offset, number, traceback, chain)
                return

    def _keep(self, rule: Rule, match: re.Match[bytes], line: Parsed, block: bytes, start: int, offset: int,
              number: int | None, traceback: tuple[str, ...], chain: int) -> None:
        part = self.part
        count = part.counts[rule.id] = part.counts.get(rule.id, 0) + 1
        if rule.role == "noise":
            return
        host, rank = line.host or self._host, line.rank
        t = line.t if line.t is not None else self._stamp_before(block, start)
        groups = {name: loglines.text(value, 400) for name, value in match.groupdict().items() if value is not None}
        if rule.role == "progress":
            self._note_progress(Progress(self.file, offset + start, _number(groups.get("step")), rank, host, t))
            return
        kept = self._kept.setdefault(rule.id, {})
        finding = Finding(rule.id, self.file, offset + start, number, loglines.text(line.payload), host, rank, t,
                          groups, traceback, chain)
        if count > KEEP_ALL and (host, rank) in kept:
            last = kept.get((None, -1))
            if last is None:
                kept[None, -1] = len(part.findings)
                part.findings.append(finding)
            else:
                part.findings[last] = finding
            return
        kept[host, rank] = len(part.findings)
        part.findings.append(finding)

    def _note_progress(self, sign: Progress) -> None:
        key = (sign.host, sign.rank)
        known = self.part.progress.get(key)
        if known is None:
            self.part.progress[key] = (sign, sign, sign)
            return
        first, _, highest = known
        self.part.progress[key] = (first, sign, sign if (sign.step or -1) >= (highest.step or -1) else highest)

    def _stamp_before(self, block: bytes, start: int) -> float | None:
        """The stamp of the nearest line before that has one; None = there is none near."""
        for raw in reversed(block[max(0, start - LOOK_BACK):start].splitlines()[-12:]):
            t = loglines.parse(raw[:loglines.MAX_PREFIX], self._hosts, self._year).t
            if t is not None:
                return t
        return None


def find_literals(literals: Sequence[bytes], block: bytes) -> list[tuple[int, int]]:
    """Where the literals stand in the block, as (offset, index of the literal), by offset."""
    hits: list[tuple[int, int]] = []
    find = block.find
    for index, literal in enumerate(literals):
        at = find(literal)
        while at >= 0:
            hits.append((at, index))
            at = find(literal, at + 1)
    hits.sort()
    return hits


def merge_progress(parts: Iterable[Mapping[tuple[str | None, int | None], tuple[Progress, Progress, Progress]]],
                   ) -> tuple[Progress, ...]:
    """The first, the last and the highest sign of each file, host and rank, in the order of the files."""
    signs = {sign for part in parts for triple in part.values() for sign in triple}
    return tuple(sorted(signs, key=lambda sign: (sign.file, sign.offset)))


def line_of(starts: Sequence[int], offset: int) -> int:
    """The number of the line that holds the offset, of lines that start at `starts`; 1-based."""
    return bisect_right(starts, offset)


def _start_of(block: bytes, at: int, low: int) -> int:
    """Where the line, or the piece of it between carriage returns, begins that holds `at`."""
    return max(block.rfind(b"\n", low, at), block.rfind(b"\r", low, at), low - 1) + 1


def _end_of(block: bytes, start: int) -> int:
    line_end = block.find(b"\n", start)
    if line_end < 0:
        line_end = len(block)
    piece_end = block.find(b"\r", start, line_end)
    return line_end if piece_end < 0 else piece_end


def _number(text: str | None) -> int | None:
    digits = (text or "").replace(",", "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 18 else None
