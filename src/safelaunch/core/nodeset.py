"""Node lists as Slurm writes them: the names in "n[0-3,7]"; the way back is core.nodefold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

from safelaunch.errors import ParseError

MOST_NAMES = 65_536   # a Slurm cluster has no more nodes (slurm.h, MAX_SLURM_NODES)
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)-(\d+)")


def expand(text: str) -> tuple[str, ...]:
    """Node names of a list like "n[0-3],m7", in its order; raises ParseError. Never looks up "@groups"."""
    try:
        return tuple(_ordered(text))
    except NodeSetParseError as error:
        raise ParseError(f"not a node list: {text!r} ({error})") from error


def expand_own(text: str | None) -> tuple[str, ...]:
    """Node names of a user's --exclude or --nodelist; () of none, of a file's name, and of what cannot be read."""
    try:
        return expand(text) if text and "/" not in text else ()
    except ParseError:
        return ()


def _check_size(text: str, before: int) -> int:
    """How many names there are with this part. Raises before ClusterShell makes all of "n[0-99999999]", for hours."""
    count = before + prod(sum(map(_count, found[1].split(","))) for found in _BRACKET.finditer(text))
    if count > MOST_NAMES or len(text) > MOST_NAMES * 64:
        raise NodeSetParseError(text, f"names more than {MOST_NAMES} nodes")
    return count


def _count(piece: str) -> int:
    ends = _RANGE.match(piece)
    return 1 if ends is None else abs(int(ends[2][:9]) - int(ends[1][:9])) + 1


def _ordered(text: str) -> Iterable[str]:
    """Part by part: a NodeSet sorts, and Slurm's order is the topology's."""
    depth, part, count = 0, "", 0
    for char in text + ",":
        depth += (char == "[") - (char == "]")
        if char in "!&^@*?":
            raise NodeSetParseError(part, f"{char!r} is ClusterShell's own notation, not Slurm's")
        if char == "," and depth == 0:
            if part.strip():
                count = _check_size(part, count)
                yield from map(str, NodeSet(part.strip(), resolver=RESOLVER_NOGROUP))
            part = ""
        else:
            part += char
    if depth:
        raise NodeSetParseError(text, "a bracket is missing: the list was cut off")
