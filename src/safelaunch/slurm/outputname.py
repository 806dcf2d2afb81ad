"""The output file of a script under plain sbatch, by its own --output or --error.

Measured with Slurm 22.05 (tests/pure/slurm/test_outputname.py): a backslash anywhere switches replacements off and is
itself left out; a width fills numbers with zeros, to ten digits at most; an unknown letter stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

NO_TASK = "4294967294"   # %a of a job that is no array: NO_VAL
_SIGN = re.compile(r"%(\d*)(.?)", re.DOTALL)
_MOST_DIGITS = 10
_BY_LINK = re.compile(r"(?:^|[\s;&|(])(gzip|pigz|bzip2|xz|zstd|tar|rsync)\s")
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


def lines_that_name(text: str, patterns: Iterable[str]) -> list[tuple[int, str]]:
    """The lines of a script's code that may read its own output, with their numbers: they have a piece of the name, or
    ask Slurm for it.
    """
    pieces = {piece for pattern in patterns for piece in _SIGN.split(pattern.rpartition("/")[2])
              if piece and len(piece) >= _SHORTEST}
    words = ("StdOut", "slurm-", *pieces)
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if any(word in line for word in words)
            and not line.lstrip().startswith("#")]


class LinkUse(NamedTuple):
    """What a command does with a link, the option by which it follows one, and the pattern of such options."""

    does: str
    option: str
    follows: str


_PACKER = LinkUse("refuses a link", "-f", r"\s-(?:-force|-stdout|\w*[fc]\w*)(?=\s|$)|<")
_LINK_USES = {"tar": LinkUse("packs the link alone", "-h", r"\s(?:--dereference|-?[a-zA-Z]*h[a-zA-Z]*)(?=\s|$)"),
              "rsync": LinkUse("copies the link alone", "-L", r"\s-(?:-copy-links|\w*[Lk]\w*)(?=\s|$)")}


def what_a_link_meets(line: str) -> str:
    """What a command of the line does with a link, where sbatch makes a file: "" for those that follow it."""
    found = _BY_LINK.search(line)
    if found is None:
        return ""
    use = _LINK_USES.get(found[1], _PACKER)
    return "" if re.compile(use.follows).search(line, found.end() - 1) else (
        f"the script's own output is a link to the attempt's log, and {found[1]} {use.does}: write {found[1]} "
        f"{use.option}")
