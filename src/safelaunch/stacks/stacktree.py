"""Stacks of all groups as one tree from the program's start; it branches where the ranks differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from safelaunch.stacks.ranks import Stack
from safelaunch.stacks.stacks import RankGroup, doing

MOST_CHAIN = 6   # frames of an unbranched stretch that are shown: its ends say most


@dataclass(frozen=True)
class Branch:
    """An unbranched stretch of frames, outermost first; how many ranks pass through, and where they go."""

    frames: Stack
    count: int
    branches: tuple[Branch, ...] = ()
    groups: tuple[RankGroup, ...] = ()     # those that end here


def grow(groups: Iterable[RankGroup]) -> tuple[Branch, ...]:
    """The tree of the groups that have a stack, the thickest branches first."""
    return _grow([(tuple(reversed(group.stack)), group) for group in groups if group.stack])


def _grow(paths: Sequence[tuple[Stack, RankGroup]]) -> tuple[Branch, ...]:
    by_first: dict[str, list[tuple[Stack, RankGroup]]] = {}
    for path, group in paths:
        by_first.setdefault(path[0], []).append((path, group))
    branches = []
    for members in by_first.values():
        length = _shared([path for path, _ in members])
        ending = tuple(group for path, group in members if len(path) == length)
        rest = [(path[length:], group) for path, group in members if len(path) > length]
        branches.append(Branch(members[0][0][:length], sum(group.size for _, group in members), _grow(rest), ending))
    return tuple(sorted(branches, key=lambda branch: -branch.count))


def _shared(paths: Sequence[Stack]) -> int:
    length = 0
    while all(len(path) > length for path in paths) and len({path[length] for path in paths}) == 1:
        length += 1
    return length


def render_tree(branches: Sequence[Branch], indent: str = "") -> list[str]:
    """Lines for people."""
    lines = []
    for branch in branches:
        first, *more = _shorten(branch.frames)
        lines.append(f"{indent}{branch.count:>6}  {first}")
        lines += [f"{indent}        {frame}" for frame in more]
        for group in branch.groups:
            numbers = f" · {'rank' if group.size == 1 else 'ranks'} {group.numbers}" if group.numbers else ""
            where = f", {group.where}" if group.where else ""
            lines.append(f"{indent}        = {group.size} {doing(group.kind)}{where}{numbers}")
        lines += render_tree(branch.branches, indent + "  ")
    return lines


def _shorten(frames: Stack) -> list[str]:
    if len(frames) <= MOST_CHAIN:
        return list(frames)
    half = MOST_CHAIN // 2
    return [*frames[:half], f"… {len(frames) - 2 * half} more", *frames[-half:]]
