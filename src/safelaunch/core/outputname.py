"""The output file of a script under plain sbatch, by its own --output or --error.

Measured with Slurm 22.05 (tests/core/test_outputname.py): a backslash anywhere switches replacements off and is itself
left out; a width fills numbers with zeros, to ten digits at most; an unknown letter stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

NO_TASK = "4294967294"   # %a of a job that is no array: NO_VAL
_SIGN = re.compile(r"%(\d*)(.?)", re.DOTALL)
_MOST_DIGITS = 10
_SHORTEST = 4   # letters of a name by which a script's text may mean its own output


class JobNames(NamedTuple):
    """What the signs of a pattern stand for; `array_id`, `task`: "" for a job that is no array."""

    job: str
    name: str
    user: str
    node: str
    array_id: str = ""
    task: str = ""


def default_pattern(is_array: bool) -> str:
    """The name that sbatch gives the output where the script has none."""
    return "slurm-%A_%a.out" if is_array else "slurm-%j.out"


def expand(pattern: str, names: JobNames) -> str:
    """The file's name, as slurmd makes it."""
    if "\\" in pattern:
        return re.sub(r"\\(.?)", r"\1", pattern, flags=re.DOTALL)
    numbers = {"j": names.job, "J": names.job, "A": names.array_id or names.job, "a": names.task or NO_TASK,
               "n": "0", "t": "0"}
    texts = {"x": names.name, "u": names.user, "N": names.node, "s": "batch", "%": "%"}

    def sign(found: re.Match[str]) -> str:
        width, letter = found[1], found[2]
        if letter in numbers and letter:
            return numbers[letter].zfill(min(int(width or 0), _MOST_DIGITS))
        if letter in texts and letter:
            return texts[letter]
        return f"{width}{letter}" if width else found[0]

    return _SIGN.sub(sign, pattern)


def line_that_names(text: str, patterns: Iterable[str]) -> int:
    """The first line of a script's code that may read its own output, 0 where none does: it has a piece of the name, or
    asks Slurm for it.
    """
    pieces = {piece for pattern in patterns for piece in _SIGN.split(pattern.rpartition("/")[2])
              if piece and len(piece) >= _SHORTEST}
    return next((number for number, line in enumerate(text.splitlines(), 1) if not line.lstrip().startswith("#")
                 and any(word in line for word in ("StdOut", "slurm-", *pieces))), 0)
