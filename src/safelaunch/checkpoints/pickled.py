"""Walks a pickle's opcodes without building anything: a checkpoint's code is never run.

pickletools.genops could do it, but it loads every argument whole, and one pickled array may be gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

Read = Callable[[int, int], bytes]  # (start, length) -> bytes
Recalls = Callable[[str], bool]

# Of one search, all its files together: 2 to 6 s. A handful of files of 60 MB of opcodes held up a search for minutes.
SEARCH_OPS = 10_000_000
# A file gets this part of what is left. The first one's is enough for 17,000 shards of a .metadata (71 each, measured).
# After 20 files that have used up theirs the next one still gets 80,000.
_SHARE = 8
# What else takes time, as that of opcodes: reading 256 KiB, and an argument that is a line or has a count.
_READ_OPS = 256
_ARGUMENT_OPS = 2

# Longer strings are tensors' names or payload; nothing asked here is longer than "__1024_12.distcp".
_LONGEST_TEXT = 128
_CHUNK_BYTES = 1 << 18
_LINE = -1
# An opcode and a number or a count: "BINFLOAT" and 8 bytes.
_LONGEST_FIXED = 16
_INTEGERS = frozenset({"BININT1", "BININT2", "BININT", "LONG1", "LONG4"})
_TEXTS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINSTRING", "BINSTRING", "GLOBAL"})
_OTHER, _IS_TEXT, _IS_INTEGER, _MEMOIZES, _RECALLS, _IS_NO_OPCODE = range(6)
_STOP = ord(".")


def _kind_of(name: str) -> int:
    """What an opcode does to the value or the memo."""
    if name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
        return _MEMOIZES
    if name in ("BINGET", "LONG_BINGET"):
        return _RECALLS
    return _IS_TEXT if name in _TEXTS else _IS_INTEGER if name in _INTEGERS else _OTHER


@cache
def _opcodes() -> tuple[tuple[str, int, int], ...]:
    """By opcode: (name, what follows, what it does); follows: ≥ 0 that many bytes, -1 a line, other negatives a count.
    """
    import pickletools  # 3 ms, and most searches meet no pickle

    known = {ord(op.code): (op.name, op.arg.n if op.arg else 0, _kind_of(op.name)) for op in pickletools.opcodes}
    return tuple(known.get(code, ("", 0, _IS_NO_OPCODE)) for code in range(256))


@cache
def _count_bytes(follows: int) -> int:
    """How many bytes a count of that kind has."""
    import pickletools

    return {pickletools.TAKEN_FROM_ARGUMENT1: 1, pickletools.TAKEN_FROM_ARGUMENT4: 4,
            pickletools.TAKEN_FROM_ARGUMENT4U: 4, pickletools.TAKEN_FROM_ARGUMENT8U: 8}[follows]


class TornPickle(ValueError):
    """The bytes end, or make no sense, before the STOP of the pickle."""


class LongPickle(ValueError):
    """The pickle has more opcodes than may be spent on it; what follows is unknown."""


class Allowance:
    """How many opcodes may still be walked; what a file spends of its share is spent for the whole search."""

    def __init__(self, ops: int = SEARCH_OPS, whole: Allowance | None = None) -> None:
        self.left = ops
        self._whole = whole

    def share(self) -> Allowance:
        """What the next file may spend."""
        return Allowance(self.left // _SHARE, self)

    def spend(self, ops: int) -> None:
        """So many were walked."""
        self.left -= ops
        if self._whole is not None:
            self._whole.spend(ops)


class Atom(NamedTuple):
    """One opcode; `value` is the short string or integer it pushes, directly or through the memo, else None."""

    op: str
    value: str | int | None
    end: int


class PickleFile:
    """A file of one pickle or several, and what may be spent on it."""

    def __init__(self, read: Read, size: int, allowance: Allowance) -> None:
        self._window = _Window(read, size)
        self._size = size
        self._allowance = allowance

    def end_of(self, start: int) -> int:
        """The offset behind the pickle that begins at `start`; raises TornPickle or LongPickle."""
        end = start
        for *_, end in self._walk_opcodes(start):  # noqa: B007 - the last one is asked for
            pass
        return end

    def walk(self, start: int, recalls: Recalls) -> Iterator[Atom]:
        """Every opcode of the pickle that begins at `start`, STOP last; raises TornPickle or LongPickle.

        The memo is followed, so that a string that is written once and recalled later is seen both times. `recalls`
        says which strings are worth it (the names of 400,000 tensors took 31 MB).
        """
        memo: dict[int, str] = {}
        memo_size = 0
        value: str | int | None = None
        for name, kind, argument, at in self._walk_opcodes(start):
            if kind == _MEMOIZES:
                if isinstance(value, str) and recalls(value):
                    memo[int.from_bytes(argument, "little") if argument else memo_size] = value
                memo_size += 1
                continue
            if kind == _RECALLS:
                value = memo.get(int.from_bytes(argument, "little"))
            elif kind == _IS_TEXT:
                value = argument.decode("utf-8", "replace") if 0 < len(argument) <= _LONGEST_TEXT else None
            elif kind == _IS_INTEGER:
                value = int.from_bytes(argument, "little", signed=name not in ("BININT1", "BININT2"))
            else:
                value = None
            yield Atom(name, value, at)

    def _walk_opcodes(self, at: int) -> Iterator[tuple[str, int, bytes, int]]:
        """(name, what it does, argument, offset behind it) of each opcode up to STOP."""
        window, size, left = self._window, self._size, self._allowance.left
        opcodes, code = _opcodes(), None
        try:
            while left > 0 and code != _STOP:
                # The loop runs millions of times: what is usual is done here, in the bytes that the window holds.
                left -= 1
                here = at - window.start
                if not 0 <= here < window.safe:
                    window.move_to(at)
                    here, left = 0, left - _READ_OPS
                code = window.bytes[here]
                name, follows, kind = opcodes[code]
                argument = b""
                if follows > 0:
                    argument = window.bytes[here + 1 : here + 1 + follows]
                    at += 1 + follows
                    if at > size:
                        raise TornPickle(f"the pickle needs byte {at} of a file of {size}")
                elif follows == 0:
                    at += 1
                else:
                    argument, at = window.take_argument(at + 1, follows, name)
                    left -= _ARGUMENT_OPS
                if kind == _IS_NO_OPCODE:
                    raise TornPickle(f"byte {at - 1} is no pickle opcode")
                yield name, kind, argument, at
        finally:
            self._allowance.spend(self._allowance.left - left)
        if code != _STOP:
            raise LongPickle("more opcodes than may be spent on it")


class _Window:
    """A part of the file in memory, moved along as it is read.

    An opcode that begins in the first `safe` bytes lies in it with its count or its number.
    """

    def __init__(self, read: Read, size: int) -> None:
        self._read = read
        self._size = size
        self.start = 0
        self.bytes = b""
        self.safe = 0

    def move_to(self, at: int) -> None:
        """Begin at this byte; raises TornPickle behind the end."""
        self.bytes = self._read(at, max(0, min(_CHUNK_BYTES, self._size - at)))
        self.start = at
        reaches_end = at + len(self.bytes) >= self._size
        self.safe = len(self.bytes) if reaches_end else max(1, len(self.bytes) - _LONGEST_FIXED)
        if not self.bytes:
            raise TornPickle(f"the pickle stops at byte {at} without its end")

    def take_argument(self, at: int, follows: int, name: str) -> tuple[bytes, int]:
        """What follows an opcode: lines, or a count and that many bytes, which are stepped over when they are many."""
        if follows == _LINE:
            return self.take_lines(at, 2 if name in ("GLOBAL", "INST") else 1)
        width = _count_bytes(follows)
        length = int.from_bytes(self.take(at, width), "little")
        at += width
        if at + length > self._size:
            raise TornPickle(f"the pickle needs byte {at + length} of a file of {self._size}")
        return self.take(at, length) if length <= _LONGEST_TEXT else b"", at + length

    def take(self, at: int, length: int) -> bytes:
        """So many bytes from there; raises TornPickle when they are not there."""
        first = at - self.start
        if first < 0 or first + length > len(self.bytes):
            if not length:
                return b""
            self.move_to(at)
            first = 0
        taken = self.bytes[first : first + length]
        if len(taken) != length:
            raise TornPickle(f"the pickle stops at byte {at} without its end")
        return taken

    def take_lines(self, at: int, count: int) -> tuple[bytes, int]:
        """So many lines joined by blanks, as in "torch FloatStorage", and the offset behind them."""
        lines = []
        for _ in range(count):
            length = self._line_length(at)
            lines.append(self.take(at, length))
            at += length + 1
        return b" ".join(lines), at

    def _line_length(self, at: int) -> int:
        end = self.bytes.find(b"\n", max(at - self.start, 0)) if at >= self.start else -1
        if end < 0:
            self.move_to(at)
            end = self.bytes.find(b"\n")
        if end < 0:
            raise TornPickle(f"the line at byte {at} has no end")
        return self.start + end - at
