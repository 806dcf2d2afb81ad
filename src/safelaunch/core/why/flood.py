"""Lines no two of which are alike: the literals are searched in the block itself, and Python sees only lines with one.

Generated text, binary data, stack frames with an address in each: nothing is gained by remembering such lines. A
literal that is in many of them (words such as "loss" in a text) is common: it is then looked for in sampled blocks
only, by `prefilter.Shapes`, and rare ones in every block. Launchers' labels tell ranks apart, each of which is heard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from safelaunch.core.why import loglines
from safelaunch.core.why.literals import Words

LOOKS, LONG_LOOKS = 100, 600    # lines with one literal that are looked at, in all that bear no label …
LONG = 16                # bytes of a literal that is hardly a word of something else
LOOKS_OF_LABEL = 12      # … and of each label
MOST_LOOKS = 20_000      # lines in all; then LOOKS_A_BLOCK
LOOKS_A_BLOCK = 8
COMMON = 2000            # lines with one literal, after which it is common


class Hit(NamedTuple):
    """A line that holds literals, numbers and punctuation aside: [start, end) in the block, without its line end."""

    start: int
    end: int
    literals: tuple[int, ...]
    shape: bytes


@dataclass(frozen=True)
class _Line:
    """A line of the block, and which of the distinct literals it holds."""

    start: int
    end: int
    literals: frozenset[int]


@dataclass
class Flood:
    """The search of one flood; `words` are the literals as they stand in a line."""

    words: Words
    counts: Mapping[str, int] = field(default_factory=dict)   # of rules: lines of the last block that were passed over
    _seen: Counter[int] = field(default_factory=Counter)      # lines with each literal
    _looks: Counter[tuple[int, bytes]] = field(default_factory=Counter)
    _looked: int = 0
    _rules: dict[frozenset[int], tuple[str, bool]] = field(default_factory=dict)   # and whether it is of progress
    _here: dict[bytes, frozenset[int]] = field(default_factory=dict)               # shapes of the last block's hits
    _rare: Words | None = None
    _names: tuple[int, ...] = ()                              # of the rare literals: their places among all

    def select(self, block: bytes) -> list[Hit]:
        """The lines of the block that are to be looked at, in order."""
        self._here = {}
        looked_here = 0
        counts: Counter[str] = Counter()
        last: dict[frozenset[int], _Line] = {}
        wanted: list[_Line] = []
        for line in self._lines(block):
            self._seen.update(line.literals)
            label = _label_of(block, line.start)
            is_over = self._looked >= MOST_LOOKS and looked_here >= LOOKS_A_BLOCK
            if not is_over and self._is_wanted(line.literals, label):
                wanted.append(line)
                looked_here += 1
                continue
            rule, is_progress = self._rules.get(line.literals, ("", False))
            if rule:
                counts[rule] += 1
            if is_progress:
                last[line.literals] = line
        self.counts = counts
        self._looked += looked_here
        if last:
            wanted = sorted((*wanted, *last.values()), key=lambda line: line.start)
        self._drop_common()
        return [self._hit(block, line) for line in wanted]

    def learn(self, shape: bytes, rule: str, is_progress: bool) -> None:
        """A rule has matched a line of this shape, which was in the last block."""
        literals = self._here.get(shape)
        if literals is not None:
            self._rules[literals] = (rule, is_progress)

    def renew(self) -> None:
        """Look at everything anew: no literal is common any more."""
        self._rare, self._looked = None, 0
        self._seen.clear()
        self._looks.clear()

    def _hit(self, block: bytes, line: _Line) -> Hit:
        shape = block[line.start:line.end]
        self._here[shape] = line.literals
        places = self.words.places
        return Hit(line.start, line.end, tuple(sorted(index for one in line.literals for index in places[one])), shape)

    def _is_wanted(self, literals: frozenset[int], label: bytes) -> bool:
        keys = [(index, label) for index in literals]
        if all(self._looks[key] >= self._most_looks(*key) for key in keys):
            return False
        self._looks.update(keys)
        return True

    def _most_looks(self, literal: int, label: bytes) -> int:
        if label:
            return LOOKS_OF_LABEL
        return LONG_LOOKS if len(self.words.distinct[literal]) >= LONG else LOOKS

    def _lines(self, block: bytes) -> Iterator[_Line]:
        """The lines that hold a literal that is not common, in order."""
        words, names = (self.words, None) if self._rare is None else (self._rare, self._names)
        found = sorted((start, end, index) for index, start, end in words.find(block))
        is_folded = b"\r" in block
        low = high = -1
        held: set[int] = set()
        for start, end, index in found:
            if start >= high:
                if held:
                    yield _Line(low, high, frozenset(held))
                    held = set()
                low = block.rfind(b"\n", 0, start) + 1
                high = block.find(b"\n", start)
                high = high if high >= 0 else len(block)
                if is_folded:
                    low = max(low, block.rfind(b"\r", low, start) + 1)
                    piece_end = block.find(b"\r", start, high)
                    high = piece_end if piece_end >= 0 else high
            if end <= high:
                held.add(index if names is None else names[index])
        if held:
            yield _Line(low, high, frozenset(held))

    def _drop_common(self) -> None:
        """Search for rare literals only, from the next block on; those that are soon to be common are so as well."""
        if not self._seen or max(self._seen.values()) < COMMON:
            return
        common = {index for index, count in self._seen.items() if count > COMMON // 4}
        known = self._names if self._rare is not None else tuple(range(len(self.words.distinct)))
        self._names = tuple(index for index in known if index not in common)
        self._rare = Words([self.words.distinct[index] for index in self._names], self.words.make,
                           engine_from=0)
        for index in common:
            del self._seen[index]


def _label_of(block: bytes, start: int) -> bytes:
    """What launchers wrote before the line."""
    match = loglines.LABELS.match(block, start, start + 200)
    return match[0] if match is not None else b""
