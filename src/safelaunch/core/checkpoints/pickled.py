"""Walks a pickle's opcodes without building anything: a checkpoint's code is never run.

pickletools.genops could do it, but it loads every argument whole, and one pickled array may be gigabytes.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator
from typing import NamedTuple

Read = Callable[[int, int], bytes]  # (start, length) -> bytes

# Longer strings are tensors' names or payload; nothing asked here is longer than "__1024_12.distcp".
_LONGEST_TEXT = 128
_CHUNK_BYTES = 1 << 18
_COUNT_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
# opcode → (name, what follows: ≥ 0 that many bytes, -1 a line, other negatives a count and that many bytes)
_OPCODES = {ord(op.code): (op.name, op.arg.n if op.arg else 0) for op in pickletools.opcodes}
_INTEGERS = frozenset({"BININT1", "BININT2", "BININT", "LONG1", "LONG4"})
_TEXTS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINSTRING", "BINSTRING"})


class TornPickle(ValueError):
    """The bytes end, or make no sense, before the STOP of the pickle."""


class LongPickle(ValueError):
    """The pickle has more opcodes than the caller wants to pay for."""


class Atom(NamedTuple):
    """One opcode; `value` is the short string or integer it pushes, directly or through the memo, else None."""

    op: str
    value: str | int | None
    end: int


def walk_pickle(
    read: Read, start: int, size: int, most_ops: int, recalls: Callable[[str], bool] | None = None
) -> Iterator[Atom]:
    """Every opcode of the pickle that begins at `start`, STOP last; raises TornPickle or LongPickle.

    The memo is followed, so that a string that is written once and recalled later is seen both times; `recalls` says
    which strings are worth it (the names of 400,000 tensors took 31 MB).
    """
    memo: dict[int, str] = {}
    memo_size = 0
    value: str | int | None = None
    for op, argument, end in _read_ops(read, start, size, most_ops):
        if op in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
            if isinstance(value, str) and (recalls is None or recalls(value)):
                memo[int.from_bytes(argument, "little") if argument else memo_size] = value
            memo_size += 1
        elif op in ("BINGET", "LONG_BINGET"):
            value = memo.get(int.from_bytes(argument, "little"))
            yield Atom(op, value, end)
        else:
            value = _value_of(op, argument)
            yield Atom(op, value, end)
            if op == "STOP":
                return


def _value_of(op: str, argument: bytes) -> str | int | None:
    if op in _TEXTS or op == "GLOBAL":
        return argument.decode("utf-8", "replace") if 0 < len(argument) <= _LONGEST_TEXT else None
    if op in _INTEGERS:
        return int.from_bytes(argument, "little", signed=op not in ("BININT1", "BININT2"))
    return None


def _read_ops(read: Read, start: int, size: int, most_ops: int) -> Iterator[tuple[str, bytes, int]]:
    """(name, argument bytes, offset behind it) of each opcode; long arguments are stepped over, not read."""
    window = _Window(read, size)
    at = start
    for _ in range(most_ops):
        name, follows = _OPCODES.get(window.take(at, 1)[0], ("", 0))
        at += 1
        if not name:
            raise TornPickle(f"byte {at - 1} is no pickle opcode")
        if follows == -1:
            argument, at = window.take_lines(at, 2 if name in ("GLOBAL", "INST") else 1)
        else:
            length = follows
            if follows < 0:
                width = _COUNT_BYTES[follows]
                length = int.from_bytes(window.take(at, width), "little")
                at += width
            if at + length > size:
                raise TornPickle(f"the pickle needs byte {at + length} of a file of {size}")
            argument = window.take(at, length) if length <= _LONGEST_TEXT else b""
            at += length
        yield name, argument, at
        if name == "STOP":
            return
    raise LongPickle(f"more than {most_ops} opcodes")


class _Window:
    """A part of the file in memory, moved along as it is read."""

    def __init__(self, read: Read, size: int) -> None:
        self._read = read
        self._size = size
        self._from = 0
        self._bytes = b""

    def take(self, at: int, length: int) -> bytes:
        first = at - self._from
        if first < 0 or first + length > len(self._bytes):
            self._bytes = self._read(at, max(length, min(_CHUNK_BYTES, self._size - at)))
            self._from, first = at, 0
        taken = self._bytes[first : first + length]
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
        end = self._bytes.find(b"\n", max(at - self._from, 0))
        if end < 0:
            self._bytes, self._from = self._read(at, _CHUNK_BYTES), at
            end = self._bytes.find(b"\n")
        if end < 0:
            raise TornPickle(f"the line at byte {at} has no end")
        return self._from + end - at
