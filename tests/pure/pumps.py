"""Lines that a regular expression finds hard: what stands before one of its repetitions, and that pumped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

try:
    sre, parser = import_module("re._constants"), import_module("re._parser")
except ImportError:   # Python 3.10
    sre, parser = import_module("sre_constants"), import_module("sre_parse")
REPEATS = tuple(getattr(sre, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(sre, name))
ALPHABET = b"a0 A_:/.-#'\"()[]{}=,\\\t|<>xe%~@"
LONG = 20          # a repetition of at most so many is none
Pump = Callable[[int], bytes]   # a line of about so many bytes


def pumps_of(pattern: bytes) -> Iterator[Pump]:
    """Ways to make a hard line for the pattern, at most a few for each repetition in it."""
    for before, body in _repetitions(list(parser.parse(pattern)), b""):
        for unit in dict.fromkeys((body, body + before, before + body)):
            if not unit:
                continue
            for end in (b"\x01", b""):
                yield _line(before, unit, end)
                yield _line(b"", unit, end)
        for byte in ALPHABET:
            if re.fullmatch(rb"(?s:.)", body[:1]) and body[:1] != bytes([byte]):
                yield _line(before, bytes([byte]), b"\x01")


def _line(start: bytes, unit: bytes, end: bytes) -> Pump:
    return lambda size: start + unit * max(1, (size - len(start) - len(end)) // len(unit)) + end


def _repetitions(items: Sequence[Any], before: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each long repetition: what must stand before it, and one turn of it."""
    for operation, argument in items:
        if operation in REPEATS:
            _, most, body = argument
            if most == sre.MAXREPEAT or most > LONG:
                yield before, example(list(body))
            yield from _repetitions(list(body), before)
        elif operation is sre.SUBPATTERN:
            yield from _repetitions(list(argument[-1]), before)
        elif operation is sre.BRANCH:
            for branch in argument[1]:
                yield from _repetitions(list(branch), before)
        before += example([(operation, argument)])


def example(items: Iterable[Any]) -> bytes:
    """A short text that the items match."""
    return b"".join(_example_of(operation, argument) for operation, argument in items)


def _example_of(operation: Any, argument: Any) -> bytes:
    if operation is sre.LITERAL:
        return bytes((int(argument),))
    if operation is sre.ANY:
        return b"a"
    if operation is sre.NOT_LITERAL:
        return b"a" if argument != 97 else b"b"
    if operation is sre.IN:
        return _member(argument)
    if operation in REPEATS:
        least, _, body = argument
        return example(list(body)) * max(1, int(least))
    if operation is sre.SUBPATTERN:
        return example(list(argument[-1]))
    if operation is sre.BRANCH:
        return example(list(argument[1][0]))
    return b""   # anchors and looks at what is near


def _member(argument: Sequence[Any]) -> bytes:
    """A byte of the class."""
    pattern = re.compile(b".", re.DOTALL)
    allowed = _allowed(argument)
    for byte in (*ALPHABET, *range(256)):
        if byte in allowed and pattern.match(bytes([byte])):
            return bytes([byte])
    return b""


def _allowed(argument: Sequence[Any]) -> set[int]:
    is_negated = False
    found: set[int] = set()
    for operation, value in argument:
        if operation is sre.NEGATE:
            is_negated = True
        elif operation is sre.LITERAL:
            found.add(value)
        elif operation is sre.RANGE:
            found.update(range(value[0], value[1] + 1))
        elif operation is sre.CATEGORY:
            name = {sre.CATEGORY_DIGIT: rb"\d", sre.CATEGORY_NOT_DIGIT: rb"\D", sre.CATEGORY_SPACE: rb"\s",
                    sre.CATEGORY_NOT_SPACE: rb"\S", sre.CATEGORY_WORD: rb"\w", sre.CATEGORY_NOT_WORD: rb"\W"}[value]
            found.update(byte for byte in range(256) if re.match(name, bytes([byte])))
    return set(range(256)) - found if is_negated else found
