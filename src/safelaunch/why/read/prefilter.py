"""Which lines of a block can matter: an exact multi-literal search in Python at most of a GB/s.

Most lines of a log have been seen before, numbers aside. So digits, spaces and punctuation are deleted (one pass of
bytes.translate), and the block is split. Then the set of its *shapes* is compared with the shapes already judged. Only
new shapes are searched for the literals (`literals`).

Where nearly all lines are new (generated text, binary data), most blocks are searched first, for the literals that are
rare in this log. Only a block that holds such is split. Others (words such as "loss" in a text) are looked for in
sampled blocks.

Measured on a Megatron log (one core, GB/s): shapes 0.8-1.0, ahocorasick_rs 0.4, `grep -F -f` 0.23. See
benchmarks/why_speed.py.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from safelaunch.why.read.literals import LiteralSet

FOLD = bytes(10 if byte == 13 else byte for byte in range(256))      # a carriage return ends a line as well
_SAYS = re.compile(rb"[^\r\n\x00]")   # sparse files read as NULs
DELETE = b"\x000123456789 \t.,:-+|/()[]=_{}'\""
QUOTA = 600                    # lines of one shape that are looked at
QUOTA_REPEATED = 60            # lines of one shape and one rank, as far as their starts say
QUOTA_DULL = 40                # lines of one shape, when no rule has matched one of them in its first block
QUOTA_SEEN = 6000              # lines of one shape among which such are looked for
QUOTA_ALIKE = 1000             # lines with the same literals, in whatever shape; then QUOTA_DEAR of each new shape
QUOTA_DEAR = 2                 # (addresses make a shape of each rank's stack frame)
QUOTA_ALIKE_MOST = 4000        # the same; then no new shape is looked at but in sampled blocks
QUOTA_PROGRESS = 100           # then the last one of each block
HEAD_LENGTH = 16               # of a line, which tells ranks apart: "137: [default1]:"
SAMPLED_BLOCK = 64
MOST_LOOKED = 12_000           # lines in all; then LOOKED_A_BLOCK of each block, and SURE_ALIKE of any set of literals
LOOKED_A_BLOCK, SURE_ALIKE = 32, 20
# A flood of lines no two of which are alike is on when blocks bring so many bytes of new shapes, for so long. One block
# of FLOOD_SAMPLED is then judged as ever.
FLOOD_FROM, FLOOD_AFTER, FLOOD_SAMPLED = 32 << 10, 1 << 20, 32
COMMON = 2000                  # new shapes with one literal, after which it is common; a quarter is soon to be
MAX_SHAPES = 60_000            # known shapes; then all are forgotten (a log of unique lines)
MAX_SHAPE_LENGTH = 1000        # a longer shape is not remembered


class Hit(NamedTuple):
    """A line that holds literals, numbers and punctuation aside: [start, end) in the block, without its line end."""

    start: int
    end: int
    literals: tuple[int, ...]
    shape: bytes


@dataclass
class _Shape:
    """A shape that holds literals: how many of its lines were seen and looked at, and which rule had the last."""

    literals: tuple[int, ...]
    block: int           # number of the first block that held it
    seen: int = 0
    looked: int = 0
    grant: int | None = None    # how many are looked at, since the quotas were renewed
    heads: set[bytes] = field(default_factory=set)
    rule: str = ""
    is_progress: bool = False


@dataclass(frozen=True)
class Unseen:
    """Lines of a block that were not selected: the rules they would have gone to, and where those of progress are.

    `shapes` are those of all lines of the block, `progress` the literals of such as are signs of life.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    shapes: tuple[bytes, ...] = ()
    progress: Mapping[bytes, tuple[int, ...]] = field(default_factory=dict)


class Shapes:
    """The prefilter with its memory of shapes; one for each log (or worker), fed block after block.

    Lines of one shape are looked at up to a quota. Then the shape is spent: only in every SAMPLED_BLOCK-th block is one
    of its lines looked at, and all are counted. Of progress the last line of each block is looked at, or
    (`all_progress`) every one. `only`: the literals by which a line is looked at, by default all.
    """

    def __init__(self, literals: Sequence[bytes], *, words: LiteralSet | None = None, all_progress: bool = False,
                 only: frozenset[int] | None = None) -> None:
        self._literals = literals
        self._words = words or LiteralSet([fold(literal) for literal in literals])
        self._only = only
        self._quota_progress = QUOTA_SEEN if all_progress else QUOTA_PROGRESS
        self.newlines = 0          # of the last block
        self.unseen = Unseen()     # of the last block
        self._dull: set[bytes] = set()
        self._spent: set[bytes] = set()
        self._progress: set[bytes] = set()   # those of the spent shapes that are signs of life
        self._known: dict[bytes, _Shape] = {}
        self._alike: dict[tuple[int, ...], int] = {}
        self._blocks = 0
        self._looked = 0
        self._looked_here = 0      # in this block
        self._new_bytes = 0        # of new shapes, as far as blocks brought more than FLOOD_FROM
        self._flood_blocks = 0     # that are still to be searched for rare literals only
        self._seen: Counter[int] = Counter()   # new shapes with each literal
        self._rare: LiteralSet | None = None   # the ones that are not common; `_names`: their indices
        self._names: Sequence[int] = range(len(literals))

    def select(self, block: bytes) -> list[Hit]:
        """The lines of the block that are to be looked at, in order."""
        if _SAYS.search(block) is None:
            self.newlines, self.unseen = block.count(b"\n"), Unseen()
            return []
        self.unseen = Unseen()
        self._blocks += 1
        self._looked_here = 0
        if self._flood_blocks > 0:
            return self._select_rare(block)
        shapes = block.translate(FOLD, DELETE).split(b"\n")
        self.newlines = block.count(b"\n") if b"\r" in block else len(shapes) - 1
        found = set(shapes)
        found -= self._dull
        is_sampled = self._blocks % SAMPLED_BLOCK == 0
        if not is_sampled:
            found -= self._spent
        hot = self._judge(found) if found else {}
        if hot and not is_sampled:
            hot = self._without_spent(hot)
        if not hot:
            return []
        lines = (block.translate(FOLD) if b"\r" in block else block).split(b"\n")
        wanted = self._wanted(shapes, lines, hot)
        if not wanted:
            return []
        ends = list(accumulate(map(len, lines)))   # without the line ends before
        return [Hit(ends[index] + index - len(lines[index]), ends[index] + index, hot[shapes[index]].literals,
                    shapes[index]) for index in wanted]

    def renew(self, grant: int) -> None:
        """Look at `grant` more lines of each shape: here something may end or begin, of which an old shape tells."""
        for known in self._known.values():
            known.grant, known.looked, known.seen = grant, 0, 0
            known.heads.clear()
        self._spent.clear()
        self._progress.clear()
        self._flood_blocks, self._rare, self._names = 0, None, range(len(self._literals))
        self._seen.clear()
        for literals, count in self._alike.items():
            self._alike[literals] = max(0, min(count, QUOTA_ALIKE - 8 * grant))

    def learn(self, shape: bytes, rule: str, *, is_progress: bool = False) -> None:
        """A rule has matched a line of this shape."""
        known = self._known.get(shape)
        if known is None:
            return
        known.rule, known.is_progress = rule, is_progress
        if is_progress and shape in self._spent:   # in the very block that brought it
            self._spent.discard(shape)
            self._progress.add(shape)

    def present(self, line: bytes) -> set[int]:
        """Indices of the literals that the line holds."""
        return self._words.present(fold(line))

    def _judge(self, found: set[bytes]) -> dict[bytes, _Shape]:
        """Those of the shapes that hold a literal; all but very long ones are remembered either way."""
        known = self._known
        hot = {shape: known[shape] for shape in found.intersection(known)}
        new = list(found.difference(hot))
        if not new:
            return hot
        self._make_room(len(new))
        text = b"\n".join(new)
        self._watch_for_flood(len(text))
        holds = self._hold(new, text)
        for index, literals in holds.items():
            shape = new[index]
            hot[shape] = _Shape(literals, self._blocks)
            if len(shape) <= MAX_SHAPE_LENGTH:
                self._known[shape] = hot[shape]
        is_long = len(text) > MAX_SHAPE_LENGTH and len(max(new, key=len)) > MAX_SHAPE_LENGTH
        self._dull.update([shape for shape in new if len(shape) <= MAX_SHAPE_LENGTH] if is_long else new)
        self._dull.difference_update(hot)
        return hot

    def _hold(self, new: Sequence[bytes], text: bytes) -> dict[int, tuple[int, ...]]:
        """Which of the shapes hold literals: their places in `new`, of which `text` is the join."""
        starts = list(accumulate([len(shape) + 1 for shape in new], initial=0))
        held: dict[int, set[int]] = {}
        for literal, start, end in self._words.find(text):
            index = bisect_right(starts, start) - 1
            if end < starts[index + 1]:
                held.setdefault(index, set()).add(literal)
        places = self._words.places
        sets: dict[frozenset[int], tuple[int, ...]] = {}
        holds: dict[int, tuple[int, ...]] = {}
        for index, literals in held.items():
            key = frozenset(literals)
            if key not in sets:
                sets[key] = tuple(sorted(place for literal in key for place in places[literal]))
            self._seen.update(sets[key])
            if self._only is None or not self._only.isdisjoint(sets[key]):
                holds[index] = sets[key]
        return holds

    def _make_room(self, count: int) -> None:
        """Forget all shapes if there is no place for so many more."""
        if len(self._dull) + len(self._known) + count > MAX_SHAPES:
            self._dull.clear()
            self._spent.clear()
            self._progress.clear()
            self._known.clear()

    def _select_rare(self, block: bytes) -> list[Hit]:
        """The lines of a block of a flood that are to be looked at, of those that hold a rare literal."""
        self._flood_blocks -= 1
        self.newlines = block.count(b"\n")
        text = block.translate(FOLD) if b"\r" in block else block
        wanted: dict[int, Hit] = {}
        last: dict[bytes, Hit] = {}   # of each shape of progress
        for low, high in self._find_rare(text).items():
            shape = fold(text[low:high])
            known = self._known.get(shape)
            if known is None:
                known = _Shape(tuple(sorted(self._words.present(shape))), self._blocks)
                self._make_room(1)
                if len(shape) <= MAX_SHAPE_LENGTH:
                    self._known[shape] = known
            hit = Hit(low, high, known.literals, shape)
            if self._only is not None and self._only.isdisjoint(known.literals):
                continue
            if shape in self._progress:
                last[shape] = hit
            elif shape not in self._spent and self._take_line(shape, known, text[low:low + HEAD_LENGTH]):
                wanted[low] = hit
        wanted.update({hit.start: hit for hit in last.values()})
        return [wanted[low] for low in sorted(wanted)]

    def _find_rare(self, text: bytes) -> dict[int, int]:
        """Where the lines with a rare literal start and end, in order; one that has become common is dropped."""
        lines: dict[int, int] = {}
        most = 0
        assert self._rare is not None   # it is made when a flood begins
        for start, end, literal in sorted((start, end, literal) for literal, start, end in self._rare.find(text)):
            high = text.find(b"\n", start)
            high = high if high >= 0 else len(text)
            if end <= high:
                lines[text.rfind(b"\n", 0, start) + 1] = high
                name = self._names[literal]
                self._seen[name] += 1
                most = max(most, self._seen[name])
        if most > COMMON:
            self._drop_common()
        return lines

    def _drop_common(self) -> None:
        """Search for rare literals only, as they stand in a line; those that are soon to be common are none."""
        self._names = [name for name in self._names if self._seen[name] <= COMMON // 4]
        self._rare = LiteralSet([self._literals[name] for name in self._names], is_fast=True)

    def _without_spent(self, hot: dict[bytes, _Shape]) -> dict[bytes, _Shape]:
        """The shapes but those of which no line is looked at, since there were too many like them: they are spent."""
        over = {shape for shape, known in hot.items() if not known.looked and not known.rule
                and not self._quota_of(known, self._alike.get(known.literals, 0))}
        for shape in over:
            self._spend(shape, hot[shape])
        return {shape: known for shape, known in hot.items() if shape not in over} if over else hot

    def _watch_for_flood(self, new_bytes: int) -> None:
        """Leave the next blocks to the flood's search if block after block brings new shapes only."""
        if new_bytes < FLOOD_FROM:
            self._new_bytes = max(0, self._new_bytes - FLOOD_FROM)
            return
        self._new_bytes += new_bytes
        if self._new_bytes >= FLOOD_AFTER:
            self._flood_blocks = FLOOD_SAMPLED - 1
            if self._rare is None or any(self._seen[name] > COMMON for name in self._names):
                self._drop_common()

    def _wanted(self, shapes: list[bytes], lines: list[bytes], hot: dict[bytes, _Shape]) -> list[int]:
        """Numbers, from 0, of the lines to look at."""
        hot_at = [index for index, shape in enumerate(shapes) if shape in hot]
        passed = (self._spent | self._progress).intersection(hot)
        wanted = [index for index in hot_at if shapes[index] not in passed and self._take_line(
            shapes[index], hot[shapes[index]], lines[index][:HEAD_LENGTH])]
        over = (self._spent | self._progress).intersection(hot)   # with those that passed their quota right here
        if over:
            self._pass_over(shapes, hot_at, hot, passed)
            wanted = sorted({*wanted, *self._last_of(shapes, hot_at, hot, over)})
        return wanted

    def _last_of(self, shapes: list[bytes], hot_at: Sequence[int], hot: dict[bytes, _Shape],
                 over: set[bytes]) -> Iterable[int]:
        """Numbers of the last lines: one for each set of literals, and one for each shape of progress."""
        last: dict[bytes | tuple[int, ...], int] = {}
        for index in hot_at:
            shape = shapes[index]
            if shape in over:
                last[shape if shape in self._progress else hot[shape].literals] = index
        return last.values()

    def _take_line(self, shape: bytes, known: _Shape, head: bytes) -> bool:
        """Whether one more line of the shape is looked at; it is spent when the quota is."""
        known.seen += 1
        alike = self._alike.get(known.literals, 0)
        quota = self._quota_of(known, alike)
        is_repeated = known.rule and not known.is_progress and known.looked >= QUOTA_REPEATED and head in known.heads
        if known.looked >= quota or known.seen >= QUOTA_SEEN:
            self._spend(shape, known)
            return False
        is_over = self._looked > MOST_LOOKED and self._looked_here >= LOOKED_A_BLOCK and alike >= SURE_ALIKE
        if is_repeated or is_over:
            return False
        self._looked += 1
        self._looked_here += 1
        known.looked += 1
        known.heads.add(head)
        self._alike[known.literals] = alike + 1
        if quota == QUOTA_DEAR and known.looked == quota:   # a third line of it need not open another block
            self._spend(shape, known)
        return True

    def _quota_of(self, known: _Shape, alike: int) -> int:
        """How many lines of the shape are looked at. No rule can have matched before its first block has been seen."""
        if known.is_progress:
            return self._quota_progress
        if self._blocks == 1:
            return QUOTA_SEEN
        if alike >= QUOTA_ALIKE:
            return QUOTA_DEAR if alike < QUOTA_ALIKE_MOST else 0
        if known.grant is not None:
            return known.grant
        return QUOTA if known.rule or known.block == self._blocks else QUOTA_DULL

    def _spend(self, shape: bytes, known: _Shape) -> None:
        if len(shape) <= MAX_SHAPE_LENGTH:
            (self._progress if known.is_progress else self._spent).add(shape)
            known.heads.clear()

    def _pass_over(self, shapes: list[bytes], hot_at: Sequence[int], hot: dict[bytes, _Shape],
                   passed: set[bytes]) -> None:
        """Note what is not looked at: all lines of these shapes but the last."""
        counts: Counter[str] = Counter()
        for shape, count in Counter([shapes[index] for index in hot_at if shapes[index] in passed]).items():
            if hot[shape].rule:
                counts[hot[shape].rule] += count * (1 if shape in self._progress else SAMPLED_BLOCK) - 1
        progress = {shape: hot[shape].literals for shape in self._progress.intersection(hot)}
        self.unseen = Unseen(counts, tuple(shapes) if progress else (), progress)


def fold(text: bytes) -> bytes:
    """The text as shapes have it."""
    return text.translate(FOLD, DELETE)
