"""Which of many literals occur in a text, and where: an exact search in plain Python, or by an engine.

In plain Python a text is cut into aligned words of 4 bytes: a literal of 7 bytes or more holds one of four known words
at each alignment, so one set of integers decides for nearly all literals at once. Measured on text no two lines of
which are alike, 1215 literals of the rules (one core, MB/s): this 30, ahocorasick_rs 370, hyperscan 2600; an
alternation in `re` 10, bytes.find for each literal 20. An engine takes 20-40 ms to be made: for long texts only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

Place = tuple[int, int, int]                                        # (index of the literal, start, end)
Search = Callable[[bytes], Iterable[Place]]                         # all places at which literals occur in a text
MakeSearch = Callable[[Sequence[bytes]], Search | None]             # None = there is no engine

WORD = 4
SURE_LENGTH = 2 * WORD - 1     # a shorter literal need hold no whole aligned word
NOT_UPPER = bytes(byte for byte in range(256) if not 65 <= byte <= 90)
SEARCH_FROM = 200              # bytes; less is searched before an engine is called
ENGINE_FROM = 256 << 10        # bytes searched without an engine before one is made: they take as long as making it


class Words:
    """Literals made ready to be searched. They may repeat: `distinct` has each once, `places` the indices of each.

    `make` makes the engine, None = there is none, when `engine_from` bytes have been searched without one.
    """

    def __init__(self, literals: Sequence[bytes], make: MakeSearch | None = None,
                 engine_from: int = ENGINE_FROM) -> None:
        places: dict[bytes, list[int]] = {}
        for index, literal in enumerate(literals):
            places.setdefault(literal, []).append(index)
        self.distinct = tuple(places)
        self.places = tuple(places.values())
        self.make = make
        self._engine_from = engine_from
        self._searched_bytes = 0
        self._engine: Search | None = None
        self._is_made = False
        self._tables: _Tables | None = None

    def prepare(self) -> None:
        """Make now what the search in plain Python looks up, which takes 15 ms."""
        if self._tables is None:
            self._tables = _Tables(self.distinct)

    def present(self, text: bytes) -> list[tuple[bytes, list[int]]]:
        """The literals that occur in the text, each with its indices."""
        search = self._search_for(text)
        found = {index for index, _, _ in search(text)} if search is not None else self._present(text)
        return [(self.distinct[index], self.places[index]) for index in found]

    def find(self, text: bytes) -> Iterable[Place]:
        """Where literals occur, by their indices in `distinct`; of places of one literal that overlap, maybe one."""
        search = self._search_for(text)
        return search(text) if search is not None else self._find(text)

    def _search_for(self, text: bytes) -> Search | None:
        """The engine, if the text is worth it, and those before it were."""
        if self.make is None or len(text) < SEARCH_FROM:
            return None
        self._searched_bytes += len(text)
        if not self._is_made and self._searched_bytes > self._engine_from:
            self._is_made = True
            self._engine = self.make(self.distinct) if self.distinct and all(self.distinct) else None
        return self._engine

    def _present(self, text: bytes) -> set[int]:
        self.prepare()
        assert self._tables is not None
        return {index for index in self._tables.near(text) if self.distinct[index] in text}

    def _find(self, text: bytes) -> Iterator[Place]:
        for index in self._present(text):
            literal = self.distinct[index]
            start = text.find(literal)
            while start >= 0:
                end = start + len(literal)
                yield index, start, end
                start = text.find(literal, max(end, start + 1))


class _Tables:
    """What the search in plain Python looks up."""

    def __init__(self, literals: Sequence[bytes]) -> None:
        self._needs: dict[int, list[tuple[frozenset[int], int]]] = {}   # a word → other words with it, the literal
        self._upper: list[tuple[bytes, int]] = []
        short: list[int] = []
        cuts: list[tuple[list[int], int]] = []
        for index, literal in enumerate(literals):
            if len(literal) >= SURE_LENGTH:
                cuts.extend((_words_of(literal, shift), index) for shift in range(WORD))
                continue
            upper = literal.translate(None, NOT_UPPER)
            if len(upper) > 1:
                self._upper.append((upper, index))
            else:
                short.append(index)
        common = Counter(chain.from_iterable(words for words, _ in cuts))
        for words, index in cuts:
            self._needs.setdefault(min(words, key=common.__getitem__), []).append((frozenset(words), index))
        self._short = tuple(short)
        self._words = frozenset(common)

    def near(self, text: bytes) -> set[int]:
        """The literals that may be in the text: all that are, and few others."""
        found = self._words.intersection(memoryview(text)[:len(text) // WORD * WORD].cast("I"))
        upper = text.translate(None, NOT_UPPER)
        near = {index for word in found for words, index in self._needs.get(word, ()) if words <= found}
        near.update(index for letters, index in self._upper if letters in upper)
        near.update(self._short)
        return near


def _words_of(text: bytes, start: int) -> list[int]:
    """The words of the text that are aligned to the start."""
    end = start + (len(text) - start) // WORD * WORD
    return memoryview(text)[start:end].cast("I").tolist()
