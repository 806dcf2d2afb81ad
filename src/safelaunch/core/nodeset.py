"""Node lists as Slurm writes them: the names in "n[0-3,7]"; the way back is core.nodefold."""

from __future__ import annotations

from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

from safelaunch.errors import ParseError


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


def _ordered(text: str) -> Iterable[str]:
    """Part by part: a NodeSet sorts, and Slurm's order is the topology's."""
    depth, part = 0, ""
    for char in text + ",":
        depth += (char == "[") - (char == "]")
        if char in "!&^@*?":
            raise NodeSetParseError(part, f"{char!r} is ClusterShell's own notation, not Slurm's")
        if char == "," and depth == 0:
            if part.strip():
                yield from map(str, NodeSet(part.strip(), resolver=RESOLVER_NOGROUP))
            part = ""
        else:
            part += char
    if depth:
        raise NodeSetParseError(text, "a bracket is missing: the list was cut off")
