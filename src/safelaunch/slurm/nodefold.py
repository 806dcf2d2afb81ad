"""Node names in their short form, as Slurm writes and reads it: "n[0-3,7]".

The way back is slurm.nodeset, whose library takes 15 ms to import: what only shows names has no need of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Slurm knows "r1n[0-3]", not "r[0-1]n[0-3]": the last number counts. Odd names have thousands of digits.
_NUMBERED = re.compile(r"(.*?)([0-9]{1,15})([^0-9]*)")


def fold(nodes: Iterable[str]) -> str:
    """The short form of node names, each once and one bracket a name; "" for none."""
    plain, groups = [], dict[tuple[str, str], list[str]]()
    for node in set(nodes):
        match = _NUMBERED.fullmatch(node)
        if match is None:
            plain.append(node)
        else:
            groups.setdefault((match[1], match[3]), []).append(match[2])
    return ",".join(sorted((*plain, *(_join(before, numbers, behind) for (before, behind), numbers in groups.items()))))


def _join(before: str, numbers: list[str], behind: str) -> str:
    """"n7" of one number, "n[008-011,100]" of several."""
    ranges: list[list[str]] = []
    for number in sorted(numbers, key=lambda text: (len(text), text)):
        if ranges and _next(ranges[-1][-1]) == number:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    text = ",".join(map("-".join, ranges))
    return f"{before}{text if len(numbers) == 1 else f'[{text}]'}{behind}"


def _next(number: str) -> str:
    """008 → 009, 9 → 10."""
    return f"{int(number) + 1:0{len(number)}d}"
