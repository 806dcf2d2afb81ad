"""Node lists as Slurm reads and writes them: the names in "n[0-3,7]"; the way back is slurm.nodefold.

A bracket holds text, not a part of a number: "n37[0-10]" is n370 to n379, and n3710 (measured with `scontrol show
hostnames` of 22.05). The names are counted before they are made, because a list may come from a file that others write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from math import prod

from safelaunch.errors import ParseError

MOST_NAMES = 65_536   # a Slurm cluster has no more nodes (slurm.h, MAX_SLURM_NODES)
_PART = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_TEXT_OR_BRACKET = re.compile(r"[^\[]+|\[[^\[\]]*\]")
_RANGE = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", re.ASCII)
_NO_NAME = re.compile(r"[!&^@*?\s]")   # some are other programs' notation for groups and differences


def expand(text: str) -> tuple[str, ...]:
    """Node names of a list like "n[0-3],m7", in its order, each once; raises ParseError."""
    parts = [part.strip() for part in _PART.findall(text)]
    if _PART.sub("", text).strip(","):
        raise ParseError(f"not a node list: {text!r} (a bracket without its other half: the list may be cut off)")
    pieces = [[_ranges(piece, text) for piece in _TEXT_OR_BRACKET.findall(part)] for part in parts if part]
    if sum(prod(map(_count, part)) for part in pieces) > MOST_NAMES:
        raise ParseError(f"not a node list: {text[:80]!r} (names more than {MOST_NAMES} nodes)")
    return tuple(dict.fromkeys("".join(name) for part in pieces for name in product(*map(_texts, part))))


def expand_own(text: str | None) -> tuple[str, ...]:
    """Node names of a user's --exclude or --nodelist; () of none, of a file's name, and of what cannot be read."""
    try:
        return expand(text) if text and "/" not in text else ()
    except ParseError:
        return ()


def _ranges(piece: str, text: str) -> str | list[tuple[str, str]]:
    """A text as it is, or a bracket's ranges as (first, last); raises ParseError."""
    if piece[0] != "[":
        if _NO_NAME.search(piece):
            raise ParseError(f"not a node list: {text[:80]!r} ({piece[:80]!r} is no name of Slurm's)")
        return piece
    found = []
    for one in piece[1:-1].split(","):
        match = _RANGE.fullmatch(one.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ParseError(f"not a node list: {text[:80]!r} ({one[:80]!r} is no range of numbers)")
        found.append((match[1], match[2] or match[1]))
    return found


def _count(piece: str | list[tuple[str, str]]) -> int:
    return 1 if isinstance(piece, str) else sum(int(last) - int(first) + 1 for first, last in piece)


def _texts(piece: str | list[tuple[str, str]]) -> Iterator[str]:
    """The numbers of a bracket as text, as wide as the first one of their range."""
    if isinstance(piece, str):
        yield piece
    else:
        for first, last in piece:
            yield from (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
