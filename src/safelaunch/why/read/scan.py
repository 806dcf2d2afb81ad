"""Blocks of a log's bytes → findings.

A literal prefilter names the lines that can matter; only those are taken apart and shown to the rules. Inside a
traceback every line is looked at, because the exception's own line need hold no literal at all.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from safelaunch.why import loglines
from safelaunch.why.findings import Finding, Pattern, Progress, Rule
from safelaunch.why.loglines import Parsed
from safelaunch.why.read import messages
from safelaunch.why.read.literals import LiteralSet
from safelaunch.why.read.parts import KEEP_ALL, KEEP_MOST, RECENT_SIGNS, Part, Speaker, join_signs, latest_signs
from safelaunch.why.read.prefilter import Hit, Shapes, Unseen, fold
from safelaunch.why.rules.generic import CUT_OFF, EXCEPTION, LINE

TRACEBACK = b"Traceback (most recent call last)"
LEAD = 200                 # bytes of a long line shown before what was found in it
MAX_LINE = 8192            # bytes of a line shown to the rules, around what the prefilter hit
MAX_TRACEBACK = 2000       # lines of one; Python folds a recursion's, so that more is indented text of another kind
MAX_BLOCK_LINES = 60       # of a traceback, kept; the frames in the middle of a deeper one go
MOST_KNOWN = 8             # tracebacks open at once whose labels are compared with a line
MAX_PATIENCE = 400         # lines of others while a traceback is open; then it is given up as torn
LATE_BLOCKS = 2            # with lines of progress that were passed over
KEEP_IN_ALL = 20_000       # of all rules: some 40 MB
MOST_STAMPLESS = 64        # lines in vain; then every 64th
LOOK_BACK = 4096           # bytes before a line in which its stamp is looked for when it has none
MOST_CANDIDATES = 10_000    # sets of literals, each with its rules; then all are forgotten
LAST: Speaker = (None, -1)   # nobody: the place of the last finding of a rule that has too many
# Not "wandb: syncing": a name without a module begins with a capital.
_EXCEPTION = re.compile(rb"(?:(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*|[A-Z_]\w*)(?:: .*|:)?$", re.DOTALL)
_SURE = re.compile(rb"(?:[A-Za-z_]\w*\.)*"
                   rb"(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Warning|Iteration|Failure)\w*"
                   rb"|[a-z_]\w*\.(?:error|timeout|gaierror|herror|Empty|Full|Aborted))(?:: |:?$)")
_CLOCK = re.compile(rb"\d\d:\d\d|\[ *\d+\.\d")   # each form of a stamp holds one of these
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")


class Compiled:
    """Rules made ready to search: `literals[i]` is an anchor of the rules `users[i]`, which are in order of precedence.

    Patterns are compiled when first needed: all of them take a third of a second, a log needs few.
    """

    def __init__(self, rules: Iterable[Rule],
                 compile_rule: Callable[[Rule], Pattern] = lambda rule: re.compile(rule.pattern)) -> None:
        self._compile = compile_rule
        self.rules = tuple(sorted(rules, key=lambda rule: (-rule.order, -rule.weight)))
        users: dict[bytes, list[int]] = {TRACEBACK: []}
        for index, rule in enumerate(self.rules):
            for literal in rule.anchor:
                users.setdefault(literal, []).append(index)
        for literal in _CHAINED:
            users.setdefault(literal, [])
        self.literals = tuple(users)
        self.users = tuple(tuple(indices) for indices in users.values())
        self.words = LiteralSet([fold(literal) for literal in self.literals])
        self.chained = frozenset(index for index, literal in enumerate(self.literals) if literal in _CHAINED)
        self._patterns: dict[int, Pattern] = {}
        self._candidates: dict[tuple[int, ...], tuple[int, ...]] = {}

    def candidates(self, literals: tuple[int, ...]) -> tuple[int, ...]:
        """The rules that a line with these literals may match, in order of precedence."""
        found = self._candidates.get(literals)
        if found is None:
            if len(self._candidates) >= MOST_CANDIDATES:
                self._candidates.clear()
            found = tuple(sorted({user for literal in literals for user in self.users[literal]}))
            self._candidates[literals] = found
        return found

    def pattern(self, index: int) -> Pattern:
        """The pattern of the rule at `index`."""
        if index not in self._patterns:
            self._patterns[index] = self._compile(self.rules[index])
        return self._patterns[index]


class _Place(NamedTuple):
    """Where a line stands: [start, end) of the block, and its offset in the file."""

    block: bytes
    start: int
    end: int
    offset: int


@dataclass
class _Open:
    """A traceback that has begun on one stream."""

    begun: Finding            # what it is while its exception's line is missing
    lines: list[bytes]
    chain: int
    label: bytes = b""        # what stands before the payload
    indent: int = 0
    length: int = 0           # lines, those that were not kept included
    age: int = 0
    is_fresh: bool = True     # the line before, of the same stream, belonged to it


@dataclass
class _Stream:
    """What is remembered of who prints: chained tracebacks are told by the lines between them."""

    chain: int = -1
    is_chained: bool = False
    last: int | None = None   # index of the last finding of a traceback


class Scanner:
    """Reads one file's blocks in order and gathers what the rules find in them."""

    def __init__(self, compiled: Compiled, file: int, shapes: Shapes, *, hosts: frozenset[bytes] = frozenset(),
                 host: str | None = None, rank: int | None = None) -> None:
        self.compiled = compiled
        self.part = Part()
        self._file = file
        self._shapes = shapes
        self._hosts = hosts
        self._host = host
        self._rank = rank
        self._open: dict[bytes, _Open] = {}
        self._streams: dict[bytes, _Stream] = {}
        self._kept: dict[str, dict[Speaker, int]] = {}
        self._stampless = 0
        self._number: int | None = None   # of the line at `_counted` in the block that is looked at
        self._counted = 0
        self._late: deque[tuple[bytes, int, Unseen]] = deque(maxlen=LATE_BLOCKS)

    def forget(self) -> None:
        """Drop what was found so far; tracebacks that are open stay open."""
        self.part = Part()
        self._kept.clear()
        self._late.clear()
        for stream in self._streams.values():
            stream.last = None

    def finish(self, is_end: bool = True) -> Part:
        """All that was found: the last signs of life of ranks whose lines were passed over are looked at now. At the
        end of the file a traceback that is still open is all that there is of an exception.
        """
        self._number = None
        for opened in self._open.values() if is_end else ():
            shown = tuple(loglines.text(text, 400) for text in opened.lines)
            self.part.findings.append(opened.begun._replace(text=shown[-1], block=shown, chain=opened.chain))
            self.part.counts[EXCEPTION] = self.part.counts.get(EXCEPTION, 0) + 1
        for block, offset, unseen in self._late:
            at = 0
            for shape in unseen.shapes:
                end = _end_of(block, at)
                literals = unseen.progress.get(shape)
                if literals is not None:
                    place = _Place(block, at, end, offset + at)
                    self._try(literals, self._parse(place, None), place)
                at = end + 1
        self._late.clear()
        return self.part

    def feed(self, block: bytes, offset: int, number: int | None = None) -> int:
        """Look at a block of whole lines and count its newlines; `number` is that of its first line, None = unknown."""
        hits = self._shapes.select(block)
        newlines = self._shapes.newlines
        unseen = self._shapes.unseen
        for rule, count in unseen.counts.items():
            self.part.counts[rule] = self.part.counts.get(rule, 0) + count
        if unseen.progress:
            self._late.append((block, offset, unseen))
        self._number, self._counted = number, 0
        at = index = 0
        while at < len(block) and (self._open or index < len(hits)):
            start = at if self._open else max(at, hits[index].start)
            hit = hits[index] if index < len(hits) and hits[index].start == start else None
            end = hit.end if hit is not None else _end_of(block, start)
            self._look(_Place(block, start, end, offset + start), hit)
            at = end + 1
            while index < len(hits) and hits[index].start < at:
                index += 1
        self.part.newlines += newlines
        return newlines

    def _look(self, place: _Place, hit: Hit | None) -> None:
        """One line: what belongs to an open traceback goes there, else the rules whose literals it holds are tried."""
        if hit is None and self._take_frame(place):
            return
        line = self._parse(place, hit)
        if hit is not None and 0 in hit.literals and TRACEBACK in line.payload:
            self._begin(line, place)
            self._shapes.learn(hit.shape, EXCEPTION)   # else the 41st rank's traceback is dull
            return
        opened = self._open.get(line.stream)
        if opened is not None:
            if self._continue(opened, line, place, hit):
                return
        elif self._open:
            self._grow_old()
        if hit is None:
            return
        if not self.compiled.chained.isdisjoint(hit.literals) and any(word in line.payload for word in _CHAINED):
            self._streams.setdefault(line.stream, _Stream()).is_chained = True
        rule = self._try(hit.literals, line, place)
        if rule is not None:
            self._shapes.learn(hit.shape, rule.id, is_progress=rule.role == "progress")

    def _take_frame(self, place: _Place) -> bool:
        """Whether the line is an indented one of an open traceback, known by its label: it is taken without parsing."""
        if len(self._open) > MOST_KNOWN or place.end - place.start > MAX_LINE:
            return False
        for stream, opened in self._open.items():
            at = place.start + len(opened.label)
            if opened.label and place.block.startswith(opened.label, place.start) and place.block[at:at + 2] == b"  ":
                self._add(opened, stream, loglines.plain(place.block[at:place.end]))
                return True
        return False

    def _parse(self, place: _Place, hit: Hit | None) -> Parsed:
        """The line taken apart; of a very long one the prefix and what is around the first literal."""
        block, start, end = place.block, place.start, place.end
        if end - start <= MAX_LINE:
            return loglines.parse(block[start:end], self._hosts)
        at = start
        if hit is not None:
            found = [block.find(self.compiled.literals[index], start, end) for index in hit.literals]
            at = max(start, min((place for place in found if place >= 0), default=start) - LEAD)
        line = loglines.parse(block[start:start + MAX_LINE], self._hosts)
        if at == start:
            return line
        return line._replace(body=b"", payload=loglines.plain(block[at:min(end, at + MAX_LINE)]))

    def _begin(self, line: Parsed, place: _Place) -> None:
        stream = self._streams.setdefault(line.stream, _Stream())
        if b"Original Traceback" in line.payload and stream.last is not None:
            # DataLoader and DataParallel print the outer exception first and the one from the worker below it.
            outer = self.part.findings[stream.last]
            self.part.findings[stream.last] = outer._replace(chain=stream.chain + 1)
        else:
            stream.chain = stream.chain + 1 if stream.is_chained else 0
        stream.is_chained = False
        raw = place.block[place.start:place.end]
        label = raw.removesuffix(line.payload) if line.payload.startswith(TRACEBACK) else b""
        begun = Finding(EXCEPTION, self._file, place.offset, self._number_of(place), "", line.host or self._host,
                        line.rank if line.rank is not None else self._rank, line.t or self._stamp_before(place),
                        {"message": CUT_OFF})
        self._open[line.stream] = _Open(begun, [*self._line_before(line, place), line.payload], stream.chain,
                                        label if label != raw else b"")

    def _line_before(self, line: Parsed, place: _Place) -> tuple[bytes, ...]:
        """The same rank's line before a traceback, which tells whether anybody minds ("Exception ignored in")."""
        labels = loglines.LABELS.match(place.block, place.start)
        label = labels[0] if labels is not None else b""
        for raw in reversed(place.block[max(0, place.start - LOOK_BACK):place.start].splitlines()[-12:]):
            if not raw.startswith(label):
                continue
            before = loglines.parse(raw[:loglines.MAX_PREFIX + 400], self._hosts)
            if before.stream == line.stream:
                return (before.payload,)
        return ()

    def _continue(self, opened: _Open, line: Parsed, place: _Place, hit: Hit | None) -> bool:
        """Whether the line belongs to the traceback; its exception's line ends it."""
        payload = line.payload
        if len(opened.lines) < 3 and (frame := payload.find(b'  File "')) > 0:
            opened.indent = frame   # torchrun's summary holds a whole traceback
        if opened.indent and payload[:opened.indent].isspace():
            payload = payload[opened.indent:]
        if payload[:1] in (b" ", b"\t", b"+", b"|"):
            self._add(opened, line.stream, payload)
            return True
        if not payload.strip():
            return True
        if _SURE.match(payload) or (opened.is_fresh and len(opened.lines) > 2 and _EXCEPTION.match(payload)):
            del self._open[line.stream]
            line = line._replace(payload=payload)
            block = tuple(loglines.text(text, 400) for text in (*opened.lines, payload))
            stream = self._streams[line.stream]
            count = len(self.part.findings)
            literals = hit.literals if hit is not None else self._shapes.present(payload)
            self._try((0, *literals), line, place, block, opened.chain)
            stream.last = count if len(self.part.findings) > count else None
            return True
        opened.is_fresh = False
        self._grow_old()
        return False

    def _rest_of(self, line: Parsed, place: _Place) -> tuple[str, ...]:
        """What the message goes on with below its first line, as far as the same speaker prints it in this block."""
        below = place.block[place.end + 1:place.end + 1 + LOOK_BACK].split(b"\n")
        parsed = (loglines.parse(raw, self._hosts) for raw in below[:messages.MOST_LINES])
        return messages.rest(loglines.text(line.payload),
                             (loglines.text(one.payload) for one in parsed if one.stream == line.stream))

    def _add(self, opened: _Open, stream: bytes, payload: bytes) -> None:
        if len(opened.lines) >= MAX_BLOCK_LINES:
            del opened.lines[MAX_BLOCK_LINES // 2]
        opened.lines.append(payload)
        opened.is_fresh = True
        opened.length += 1
        if opened.length > MAX_TRACEBACK:
            del self._open[stream]

    def _grow_old(self) -> None:
        for stream, opened in list(self._open.items()):
            opened.age += 1
            if opened.age > MAX_PATIENCE:
                del self._open[stream]

    def _try(self, literals: Iterable[int], line: Parsed, place: _Place, traceback: tuple[str, ...] = (),
             chain: int = 0) -> Rule | None:
        """The rule that has the line, of those whose literals it holds; None = none. A step is one in noise, too."""
        noise: tuple[Rule, re.Match[bytes]] | None = None
        for index in self.compiled.candidates(tuple(literals)):
            pattern = self.compiled.pattern(index)
            match = pattern.search(line.payload) or (
                pattern.search(line.body) if len(line.body) > len(line.payload) else None)
            if match is not None and (noise is None or self.compiled.rules[index].role == "progress"):
                rule = self.compiled.rules[index]
                if rule.role == "noise":
                    noise = noise or (rule, match)
                    continue
                self._keep(rule, match, line, place, traceback, chain)
                return rule
        if noise is not None:
            self._keep(*noise, line, place, traceback, chain)
        return noise and noise[0]

    def _keep(self, rule: Rule, match: re.Match[bytes], line: Parsed, place: _Place, traceback: tuple[str, ...],
              chain: int) -> None:
        part = self.part
        count = part.counts[rule.id] = part.counts.get(rule.id, 0) + 1
        if rule.role == "noise":
            return
        host, rank = line.host or self._host, line.rank if line.rank is not None else self._rank
        if rule.role == "progress":
            step = match["step"] if "step" in match.re.groupindex else None
            self._note_progress(Progress(self._file, place.offset, _number(step), rank, host, line.t))
            return
        groups = {name: loglines.text(value, 400) for name, value in match.groupdict().items() if value is not None}
        kept = self._kept.setdefault(rule.id, {})
        is_extra = (count > KEEP_ALL and (host, rank) in kept) or len(kept) > KEEP_MOST or (
            len(part.findings) > KEEP_IN_ALL and count > 1)
        key = LAST if is_extra else (host, rank)
        t = line.t if line.t is not None else self._stamp_before(place)
        said = loglines.said_by(line) if match.end() <= 2000 else match.string[max(0, match.start() - LEAD):]
        finding = Finding(rule.id, self._file, place.offset, self._number_of(place), loglines.text(said), host, rank, t,
                          groups, traceback, chain)
        if rule.id in (EXCEPTION, LINE) and not is_extra and (more := self._rest_of(line, place)):
            finding = messages.join(finding, more)
        last = kept.get(LAST) if is_extra else None
        if last is None:
            kept[key] = len(part.findings)
            part.findings.append(finding)
        else:
            part.findings[last] = finding

    def _number_of(self, place: _Place) -> int | None:
        """The line's number in the file, for which the block's lines are counted up to it; None = not known."""
        if self._number is not None:
            self._number += place.block.count(b"\n", self._counted, place.start)
            self._counted = place.start
        return self._number

    def _note_progress(self, sign: Progress) -> None:
        key = (sign.host, sign.rank)
        known = self.part.progress.get(key)
        self.part.progress[key] = (sign, sign, sign) if known is None else join_signs(known, (sign, sign, sign))
        self.part.recent.append(sign)
        if len(self.part.recent) > 4 * RECENT_SIGNS:
            self.part.recent = latest_signs(self.part.recent)

    def _stamp_before(self, place: _Place) -> float | None:
        """The stamp of the nearest line before that has one; None = there is none near, and often none in the log."""
        self._stampless += 1
        if self._stampless > MOST_STAMPLESS and self._stampless % MOST_STAMPLESS:
            return None
        for raw in reversed(place.block[max(0, place.start - LOOK_BACK):place.start].splitlines()[-12:]):
            head = raw[:loglines.MAX_PREFIX]
            if _CLOCK.search(head) and (t := loglines.parse(head, self._hosts).t) is not None:
                self._stampless = 0
                return t
        return None


def _end_of(block: bytes, start: int) -> int:
    line_end = block.find(b"\n", start)
    if line_end < 0:
        line_end = len(block)
    piece_end = block.find(b"\r", start, line_end)
    return line_end if piece_end < 0 else piece_end


def _number(text: bytes | None) -> int | None:
    digits = (text or b"").replace(b",", b"")
    return int(digits) if digits.isdigit() and len(digits) < 18 else None
