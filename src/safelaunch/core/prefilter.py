"""Which lines of a block can matter: an exact multi-literal search in plain Python at most of a GB/s.

Most lines of a log have been seen before, numbers aside. So digits, spaces and punctuation are deleted (one pass of
bytes.translate), the block is split, and the set of its *shapes* is compared with the shapes already judged. Only new
shapes are searched for the literals, by their aligned 4-byte words: a literal of 7 bytes or more holds one of four
known words at each alignment, so a set of integers decides for all literals at once.

Measured on a Megatron log with 150 literals (one core, GB/s): shapes 0.8-1.0; `grep -F -f` 0.35; an alternation in `re`
0.01; bytes.find for each literal 0.02. With numpy the words of the raw block are looked up in a table instead: 4.9
(hyperscan: 2.5). See benchmarks/why_speed.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

FOLD = bytes(10 if byte == 13 else byte for byte in range(256))      # a carriage return ends a line as well
DELETE = b"0123456789 \t.,:-+|/()[]=_{}'\""
WORD = 4
SURE_LENGTH = 2 * WORD - 1     # a shorter literal need hold no whole aligned word
QUOTA = 2000                   # lines of one shape that are looked at; later ones are counted, some looked at
QUOTA_DULL = 300               # the same, while no rule has matched one of them
QUOTA_PROGRESS = 100           # then the last one of each block
MAX_SHAPES = 60_000            # known shapes; then all are forgotten (a log of unique lines)
MAX_SHAPE_LENGTH = 1000        # a longer shape is not remembered


class Words:
    """Which literals occur in a text, by aligned words. `sample` says which words are common in this log."""

    def __init__(self, literals: Sequence[bytes], sample: bytes = b"") -> None:
        self.literals = tuple(literals)
        self._short = [index for index, literal in enumerate(literals) if len(literal) < SURE_LENGTH]
        common = count_words(sample)
        self.by_word: dict[int, list[int]] = {}
        for index, literal in enumerate(literals):
            if len(literal) >= SURE_LENGTH:
                for word in rare_words(literal, common):
                    self.by_word.setdefault(word, []).append(index)
        self._words = frozenset(self.by_word)

    def present(self, text: bytes) -> list[int]:
        """Indices of the literals that occur in the text."""
        view = memoryview(text)[:len(text) // WORD * WORD].cast("I")
        near = {index for word in self._words.intersection(view) for index in self.by_word[word]}
        return [index for index in (*self._short, *near) if self.literals[index] in text]


def fold_words(literals: Sequence[bytes]) -> Words:
    """The literals as shapes have them, ready to be searched."""
    return Words([fold(literal) for literal in literals])


def count_words(sample: bytes) -> Counter[int]:
    """How often each word stands in the sample, at any alignment."""
    counts: Counter[int] = Counter()
    for shift in range(WORD):
        end = shift + (len(sample) - shift) // WORD * WORD
        if end > shift:
            counts.update(memoryview(sample)[shift:end].cast("I"))
    return counts


def rare_words(literal: bytes, common: Counter[int]) -> list[int]:
    """For each alignment that the literal can have, the rarest word that stands whole in it then."""
    places = range(len(literal) - WORD + 1)
    words = [memoryview(literal[at:at + WORD]).cast("I")[0] for at in places]
    # Of equally common ones the later: words begin alike ("conn", "Fail") and end apart.
    return [min((words[at] for at in reversed(places[shift::WORD])), key=lambda word: common[word])
            for shift in range(WORD)]


@dataclass
class _Shape:
    """A shape that holds literals, and how many of its lines were seen."""

    literals: tuple[int, ...]
    seen: int = 0
    quota: int = QUOTA_DULL
    is_progress: bool = False


@dataclass(frozen=True)
class Hit:
    """A line that holds literals, numbers and punctuation aside: [start, end) in the block, without its line end."""

    start: int
    end: int
    literals: tuple[int, ...]
    shape: bytes


class Shapes:
    """The prefilter with its memory of shapes; one for each log (or worker), fed block after block."""

    def __init__(self, literals: Sequence[bytes], *, words: Words | None = None, is_thorough: bool = False) -> None:
        self._words = words or fold_words(literals)
        self._literals = self._words.literals
        self._is_thorough = is_thorough
        self.left_out: tuple[int, ...] = ()   # numbers, from 0, of the lines of progress not selected of the last block
        self.newlines = 0                     # of the last block, from `begin` on
        self._dull: set[bytes] = set()
        self._known: dict[bytes, _Shape] = {}

    def select(self, block: bytes, begin: int = 0) -> list[Hit]:
        """The lines from `begin` on that are to be looked at, in order."""
        raw = block[begin:] if begin else block
        shapes = raw.translate(FOLD, DELETE).split(b"\n")
        self.newlines = raw.count(b"\n") if b"\r" in raw else len(shapes) - 1
        self.left_out = ()
        found = set(shapes)
        found -= self._dull
        if not found:
            return []
        hot: dict[bytes, _Shape] = {}
        new: list[bytes] = []
        for shape in found:
            known = self._known.get(shape)
            if known is None:
                new.append(shape)
            else:
                hot[shape] = known
        hot.update(self._judge(new))
        wanted = self._wanted(shapes, hot) if hot else []
        if not wanted:
            return []
        ends = list(accumulate(map(len, _split(raw)), lambda end, length: end + length + 1))
        return [Hit(begin + (ends[index - 1] + 1 if index else 0), begin + ends[index], hot[shapes[index]].literals,
                    shapes[index]) for index in wanted]

    def present(self, line: bytes) -> list[int]:
        """Indices of the literals that the line holds."""
        return self._words.present(fold(line))

    def learn(self, shape: bytes, *, is_progress: bool) -> None:
        """A rule has matched a line of this shape."""
        known = self._known.get(shape)
        if known is not None:
            known.is_progress = is_progress
            known.quota = QUOTA_PROGRESS if is_progress else QUOTA

    def _judge(self, new: list[bytes]) -> dict[bytes, _Shape]:
        """Those of the new shapes that hold a literal; all but very long ones are remembered either way."""
        if not new:
            return {}
        if len(self._dull) + len(self._known) + len(new) > MAX_SHAPES:
            self._dull.clear()
            self._known.clear()
        hot: dict[bytes, _Shape] = {}
        present = self._words.present(b"\n".join(new))
        for shape in new:
            literals = tuple(index for index in present if self._literals[index] in shape)
            if literals:
                hot[shape] = _Shape(literals)
            elif len(shape) <= MAX_SHAPE_LENGTH:
                self._dull.add(shape)
        self._known.update((shape, known) for shape, known in hot.items() if len(shape) <= MAX_SHAPE_LENGTH)
        return hot

    def _wanted(self, shapes: list[bytes], hot: dict[bytes, _Shape]) -> list[int]:
        """Which lines to look at: all of a shape up to its quota, then fewer and fewer; of progress always the last."""
        within = [index for index, shape in enumerate(shapes) if shape in hot]
        if self._is_thorough:
            return within
        wanted = []
        last: dict[bytes, int] = {}
        left_out = []
        for index in within:
            known = hot[shapes[index]]
            known.seen += 1
            if known.seen <= known.quota or not known.seen & (known.seen - 1):
                wanted.append(index)
            elif known.is_progress:
                last[shapes[index]] = index
                left_out.append(index)
        if not last:
            return wanted
        self.left_out = tuple(left_out)
        return sorted({*wanted, *last.values()})


def fold(text: bytes) -> bytes:
    """The text as shapes have it."""
    return text.translate(FOLD, DELETE)


def _split(block: bytes) -> list[bytes]:
    return (block.translate(FOLD) if b"\r" in block else block).split(b"\n")


def overlaps(pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pieces [start, end) joined where they touch, in order."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(pieces):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
